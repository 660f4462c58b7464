"""The dense model of mod.h's defaults in PyTorch, for bench.c: RMSNorm, RoPE, causal attention, gelu MLP, no biases,
logits by the embedding, AdamW. One step for each line read; answers with its milliseconds.

   torch_step.py THREADS LAYERS WIDTH HEADS CONTEXT SEQS VOCAB
"""
import sys
import time

try:
    import torch
    import torch.nn.functional as F
except Exception as why:
    print("no PyTorch: %s" % str(why).split("\n")[0])
    sys.exit()

threads, layers, width, heads, context, seqs, vocab = map(int, sys.argv[1:])
torch.set_num_threads(threads)
torch.manual_seed(1)
hd = width // heads


def weight(*shape, std=0.02):
    return torch.nn.Parameter(torch.randn(*shape) * std)


def block():
    out = 0.02 / (2 * layers) ** 0.5
    return dict(norm1=torch.nn.Parameter(torch.ones(width)), norm2=torch.nn.Parameter(torch.ones(width)),
                qkv=weight(3 * width, width), o=weight(width, width, std=out),
                w1=weight(4 * width, width), w2=weight(width, 4 * width, std=out))


embed = weight(vocab, width)
final = torch.nn.Parameter(torch.ones(width))
blocks = [block() for _ in range(layers)]
adamw = torch.optim.AdamW([embed, final] + [p for b in blocks for p in b.values()], lr=1e-3, betas=(0.9, 0.95),
                          weight_decay=0)
angle = torch.outer(torch.arange(context).float(), 10000.0 ** (-torch.arange(0, hd, 2).float() / hd))
cos, sin = angle.cos(), angle.sin()
mask = torch.full((context, context), float("-inf")).triu(1)
fused = getattr(F, "scaled_dot_product_attention", None)  # PyTorch 2


def norm(x, gain):
    return x * (x.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt() * gain


def rope(x):  # halves instead of neighbours: the same up to the order of the weights, and quicker here
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


def attention(q, k, v):
    if fused:
        return fused(q, k, v, is_causal=True)
    return torch.softmax(torch.matmul(q * hd ** -0.5, k.transpose(-1, -2)) + mask, -1) @ v


def loss_of(tokens, targets):
    x = F.embedding(tokens, embed)
    for b in blocks:
        q, k, v = F.linear(norm(x, b["norm1"]), b["qkv"]).view(seqs, context, 3, heads, hd).permute(2, 0, 3, 1, 4)
        h = attention(rope(q), rope(k), v).transpose(1, 2).reshape(seqs, context, width)
        x = x + F.linear(h, b["o"])
        x = x + F.linear(F.gelu(F.linear(norm(x, b["norm2"]), b["w1"]), approximate="tanh"), b["w2"])
    return F.cross_entropy(F.linear(norm(x, final), embed).view(-1, vocab), targets.view(-1))


text = torch.randint(vocab, (seqs, context + 1))
tokens, targets = text[:, :-1].contiguous(), text[:, 1:].contiguous()
print("ready PyTorch %s" % torch.__version__, flush=True)
for line in sys.stdin:
    began = time.perf_counter()
    adamw.zero_grad(set_to_none=True)
    loss = loss_of(tokens, targets)
    loss.backward()
    adamw.step()
    loss.item()
    print("%.4f" % (1000 * (time.perf_counter() - began)), flush=True)
