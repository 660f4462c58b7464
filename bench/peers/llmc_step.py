"""llm.c's CPU program, train_gpt2.c, for bench.c: one step for each line read; answers with its milliseconds. Its model
is GPT-2 of the same shape: LayerNorm, biases, learned positions. Built as its Makefile does, -Ofast -march=native.

   llmc_step.py DIR THREADS LAYERS WIDTH HEADS CONTEXT SEQS VOCAB        (DIR: a checkout; files go to build/llmc)
"""
import array
import os
import random
import re
import subprocess
import sys

source = os.path.abspath(sys.argv[1])
threads, layers, width, heads, context, seqs, vocab = map(int, sys.argv[2:])
padded = (vocab + 127) // 128 * 128
here = os.path.abspath("build/llmc")


def leave(why):
    print(why, flush=True)
    sys.exit()


# The program, with our batch, without its evaluations, and with a wait for a line before each step.
edits = [(r"int B = 4;", "int B = %d; setvbuf(stdout, NULL, _IOLBF, 0);" % seqs),
         (r"int T = 64;", "int T = %d;" % context),
         (r"step <= 40", "step <= 1000000000"),
         (r"if \(step % 10 == 0\)", "if (0)"),
         (r"if \(step > 0 && step % 20 == 0\)", "if (0)"),
         (r"(// do a training step\n)", r"\1        if (getchar() == EOF) return 0;" + "\n")]
try:
    text = open(os.path.join(source, "train_gpt2.c")).read()
except OSError as why:
    leave("%s: %s" % (why.filename, why.strerror))
for old, new in edits:
    text, n = re.subn(old, new, text)
    if n != 1:
        leave("train_gpt2.c is not as expected: %d times %s" % (n, old.strip()))
folder = os.path.join(here, "%dx%d" % (layers, width))
data = os.path.join(folder, "dev/data/tinyshakespeare")
os.makedirs(data, exist_ok=True)
patched = os.path.join(folder, "train_gpt2.c")
open(patched, "w").write(text)
build = [os.environ.get("CC", "cc"), "-Ofast", "-march=native", "-w", "-fopenmp", "-DOMP", "-I", source, patched,
         "-o", os.path.join(folder, "train_gpt2"), "-lm"]
if subprocess.call(build, stdout=sys.stderr):
    leave("train_gpt2.c does not compile")

# A checkpoint: a header of 256 ints, then the parameters in this order.
random.seed(1)
some = array.array("f", (random.gauss(0, 0.02) for _ in range(1 << 16)))


def write(f, count, value=None):
    if value is not None:
        array.array("f", [value] * count).tofile(f)
        return
    while count > 0:
        some[:min(count, len(some))].tofile(f)
        count -= len(some)


with open(os.path.join(folder, "gpt2_124M.bin"), "wb") as f:
    header = [20240326, 3, context, vocab, layers, heads, width, padded]
    array.array("i", header + [0] * (256 - len(header))).tofile(f)
    write(f, (padded + context) * width)                                    # embedding, positions
    for n, value in [(1, 1.0), (1, 0.0), (3 * width, None), (3, 0.0), (width, None), (1, 0.0), (1, 1.0), (1, 0.0),
                     (4 * width, None), (4, 0.0), (4 * width, None), (1, 0.0)]:
        write(f, layers * n * width, value)
    write(f, width, 1.0)                                                    # the last norm
    write(f, width, 0.0)
for part in "train", "val":
    with open(os.path.join(data, "tiny_shakespeare_%s.bin" % part), "wb") as f:
        tokens = seqs * context * 16 + 1
        array.array("i", [20240520, 1, tokens] + [0] * 253).tofile(f)
        array.array("H", (random.randrange(vocab) for _ in range(tokens))).tofile(f)

program = subprocess.Popen(["./train_gpt2"], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                           env=dict(os.environ, OMP_NUM_THREADS=str(threads)))


def step():
    program.stdin.write("\n")
    program.stdin.flush()
    for line in program.stdout:
        took = re.search(r"took ([0-9.]+) ms", line)
        if took:
            return took.group(1)
    leave("train_gpt2 ended")


step()  # the first one allocates
print("ready llm.c, -Ofast -march=native, %d thread%s" % (threads, "s" if threads > 1 else ""), flush=True)
for line in sys.stdin:
    print(step(), flush=True)
