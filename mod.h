/* mod.h - v0.4.0 - Mixture-of-Depths transformers in one C header - public domain or MIT, at your choice

   Tensors, an autograd tape, expert-choice and token-choice routing, Mixture-of-Depths (MoD), mixture-of-experts and
   Mixture-of-Depths-and-Experts (MoDE) transformer blocks, training, causal sampling with a cache for each block, and
   safetensors files. C99 that is also C++11. Needs libc and libm; uses OpenMP where the compiler is asked for it;
   nothing else.

   In exactly one C or C++ file:

      #define MOD_IMPLEMENTATION
      #include "mod.h"

   and `cc -O2 file.c -lm` (for threads -fopenmp and n_threads). Everywhere else just include it.

   QUICK FACTS
      a config is a zeroed struct      mod_config cfg = {0}; cfg.vocab_size = 256; ... zero means default
      no allocation after set-up       exact bytes are known beforehand; your buffer, your allocator, or malloc
      no global state                  every object is independent; a model that nobody trains may be shared by threads
      errors are values                a code, a sentence and a position; never prints, exits or aborts
      the same bits                    one seed gives the same weights and tokens run after run, for any number of
                                       threads, any batch, gcc or clang, -O0 or -O3, with AVX-512 or without SIMD
                                       (plain arithmetic: multiply, round, add, round; see >>concepts)
      fast without flags               SSE2, AVX2, AVX-512 on x86-64, found when it runs; NEON; WebAssembly SIMD128
      a compiler's -ffast-math         is refused with an #error: it changes results and removes NaN checks

   OVERRIDES: define before including, the same in every file
      MOD_STATIC            all functions static: the whole library private to one file
      MODDEF                linkage of public functions, if `extern` or `static` is not what you want
      MOD_USE_DOUBLE        mod_real is double: for gradient checks and teaching; plain loops, and not the same bits
      MOD_FAST_FMA          AVX2, AVX-512 and NEON fuse the multiply and add of products: half the operations, and no
                            longer the bits of the plain arithmetic; what it brings depends on the processor
      MOD_NO_SIMD           plain loops only: half the code, several times slower; no run-time choice (on x86-64 that
                            asks libgcc or compiler-rt what the processor has: __cpu_model)
      MOD_SELF              the name you gave this file, if not "mod.h": it includes itself for its vector code, so it
                            must stay a file of its own
      MOD_NO_OPENMP         ignore OpenMP even if the compiler has it on
      MOD_NO_MALLOC         no default allocator: you give a buffer or a mod_allocator
      MOD_NO_STDIO          no FILE: read and write through a mod_reader and a mod_writer
      MOD_MALLOC, MOD_FREE  both or neither: malloc and free by other names
      MOD_ASSERT            called on the library's own invariants (default: nothing)
      MOD_ALLOW_FAST_MATH   build in spite of -ffast-math; the same bits and NaN checks are then not promised

   RECENT HISTORY
      0.4.0  every routing scheme of the paper: token-choice, controls, experts, MoDE, keys apart; rows of floats in
      0.3.0  vector code chosen at run time, blocked products, attention by strips
      0.2.0  the language model: sessions, files, exact resume, calibrated thresholds
      0.1.0  the algorithm: tape, ops, routing, dense and MoD blocks, training, sampling

   CONTENTS (search for the tag)
      1  what it does not do; limits     >>limits      10  ops                             >>api-ops
      2  the idea on one page            >>idea        11  model                           >>api-model
      3  step by step                    >>steps       12  training                        >>api-train
      4  memory, errors, same bits,      >>concepts    13  session: decoding with a cache  >>api-session
         files, threads, C++                           14  sampling                        >>api-sample
      5  results, errors, plumbing       >>api-base    15  files                           >>api-file
      6  configuration of a model        >>api-config  16  implementation, in this order:  >>config >>size >>arena
      7  random numbers                  >>api-rng         >>math >>rng >>kernels >>route >>tape >>ops >>model
      8  routing on plain arrays         >>api-route       >>blocks >>account >>train >>session >>sample >>file
      9  tape: tensors and autograd      >>api-tape        >>host >>simd >>licence

   To learn the algorithm read >>idea, then >>route, >>blocks and >>ops of the implementation.


   >>limits  WHAT IT DOES NOT DO; LIMITS
   ------------------------------------
   No tokenizer (ids in, ids out; a byte is a fine token), no GPU. No dropout on attention's probabilities. A session
   decodes one sequence. Files hold F32 (F64 with MOD_USE_DOUBLE); either is read, and rounded to mod_real; other types
   are listed, not read, and a file with a type unknown here is refused. mod_file_open reads files of up to LONG_MAX
   bytes: 2 GB on Windows.
   vocab_size, context <= 2^20; n_layers <= 1024; d_model <= 2^16; d_ff <= 2^18; n_experts, n_noops <= 64; rows of a
   batch <= 2^24.
   Stack: 24 KB to plan and to set up, 5 KB to run and to calibrate.
   Sizes are checked: what does not fit is refused.


   >>idea  THE IDEA ON ONE PAGE
   ----------------------------
   A transformer spends the same work on every token in every block. Mixture-of-Depths (Raposo et al. 2024,
   arXiv:2404.02258) fixes beforehand how many tokens, k of T, may enter a block, and lets the block choose which:

      token          one position of a sequence; its state is a row x_i of d_model numbers
      block          attention and MLP; what it adds to x is its *delta*
      router         one vector w per routed block; the score of a token is r_i = w . x_i
      capacity c     the share of tokens a routed block takes: k = floor(c T), at least 1
      expert-choice  the block picks its tokens (the k best scores); no token picks, so the load is always even
      gate g         how the score scales the delta, so that the router receives a gradient: g(r) = r, sigmoid(r),
                     1 + a tanh(r), or 1
      deciding logit what causal mode compares with a threshold: the predictor's (see below), else the router's score
      routed block   does this; every second block by default, the first is full ("dense")

      mod_block(X):                             X: T rows, in order of position
         r    = X w                             a score for every row
         S    = positions of the k largest r    ties: the earlier position; S ascending
         X~   = rows S of X                     gathered: the rest costs nothing from here on
         h    = attention(norm(X~))             among the rows of S only, causal, at their original positions
         m    = mlp(norm(X~ + h))
         X[S] = X~ + g(r[S]) (h + m)            all other rows pass unchanged, bit for bit
         (a dense block is the same with S = everything and g = 1)

   Why top-k is not causal: whether token 5 is among the k best depends on tokens that come after it. In training that
   is fine; in sampling those tokens do not exist yet. The remedy: a *predictor*, a small net that sees x_i alone
   (with no gradient into the model) learns to answer "will the top-k take this token?". When sampling, a token enters
   the block iff the predictor's logit is above a threshold. Or the router itself is trained for it by an auxiliary
   loss. The gate is the router's in either case. Here that is two modes of one forward pass: MOD_MODE_TOPK to train,
   MOD_MODE_CAUSAL to evaluate honestly and to sample. Loss is worth quoting in causal mode only.

   The paper's other schemes, and the controls, are settings of mod_config (or of one block, mod_block_config):

      select       who enters a block: the router's best; who prefers it (token-choice: paths have slots, given in order
                   of position, and who finds none is *dropped*); or, to see what learning is worth, chance or position
      mlp          one MLP; or *experts*, of which a token passes those that it chooses, or that choose it (MoE).
                   Behind a block that selects its tokens: *staged* MoDE. With *no-ops* in the same router, ways past
                   the experts that a token can choose: *integrated* MoDE
      kv_select    keys and values selected apart: one router says who is updated, another who is remembered
      bypass       the router's weight on the tokens too that a block passes by
   A *path* is what a router decides about: the block itself, its keys and values, one of its experts.


   >>steps  STEP BY STEP
   ---------------------
      mod_error err;
      mod_config cfg = {0};                                        // what a model is; in C++ write {}
      cfg.vocab_size = 256; cfg.context = 128; cfg.n_layers = 6; cfg.d_model = 64; cfg.n_heads = 4;

      mod_model *model = mod_model_create(&cfg, NULL, &err);        // NULL: malloc; or mod_model_init(your memory)
      if (!model) return puts(err.message);
      mod_model_randomize(model, 1, &err);                          // seed

      mod_train_desc how = {0};                                     // how to train; zero means default
      how.n_seqs = 8; how.steps = 1000; how.lr = 3e-3;
      mod_trainer *trainer = mod_trainer_create(model, &how, NULL, &err);   // gradients, moments, tape: once

      mod_batch batch = {0};                                        // 8 sequences of 128 token ids, and the ids that
      batch.n_seqs = 8; batch.length = 128;                         // should follow each (-1: no target)
      batch.tokens = tokens; batch.targets = targets;
      for (step = 0; step < 1000; ++step) {
         mod_step_info info;
         fill(tokens, targets);                                     // yours
         if (mod_train_step(trainer, &batch, &info, &err) != MOD_RESULT_OK) puts(err.message);
      }

      mod_save_file(model, NULL, "model.safetensors", &err);        // see also mod_save_desc: to go on training later

      mod_session *session = mod_session_create(model, NULL, NULL, &err);   // causal decoding, a cache for each block
      mod_sample_desc sampling = {0};                               // zero: greedy
      mod_session_feed(session, prompt, n, &err);                   // n token ids
      for (i = n; i < cfg.context; ++i) {
         int next = mod_sample(mod_session_logits(session), 256, &sampling, (uint64_t)i, &err);
         if (mod_session_feed(session, &next, 1, &err) != MOD_RESULT_OK) break;
      }

      mod_session_destroy(session); mod_trainer_destroy(trainer); mod_model_destroy(model);

      mod_file *file = mod_file_open("model.safetensors", NULL, &err);      // another day
      mod_file_config(file, &cfg, &err);
      model = mod_model_create(&cfg, NULL, &err);
      cfg = mod_model_config(model);                                // its blocks lived in the file, now in the model
      mod_file_load(file, model, NULL, &err);
      mod_file_close(file);

   To evaluate, mod_model_forward on a forward-only tape of mod_forward_plan bytes, in mode MOD_MODE_CAUSAL.


   >>concepts  MEMORY, ERRORS, SAME BITS, FILES, THREADS, C++
   ----------------------------------------------------------
   Names. `init` builds an object in your memory and `plan` says how much it takes; `create`/`destroy` do it with a
   mod_allocator (NULL: MOD_MALLOC and MOD_FREE). `resolve` fills in defaults, `check` says what is wrong.

   Memory. Each object is one block: nothing is allocated after set-up. The tape is an arena; `mod_tape_reset` forgets
   everything on it. How large? The same code that builds a network runs once on a *measuring* tape, which counts and
   has no data, and the count is exact: that many bytes succeed, one byte less is refused. How many tokens enter a block
   depends on the data in causal mode, so rows are reserved at their maximum. Memory must be aligned to 8 bytes.

   Errors. Functions return a mod_result or a pointer (NULL on failure) and fill a mod_error if you give one. A tape
   keeps its first error: later ops do nothing and return NULL, and NULL passes through, so that a network reads as
   straight lines with one check at the end. A failing call changes nothing that it does not say it changes.

   Same bits. Floating-point addition is not associative, so the order of every sum is part of this library's contract:
   one chain per output element of a matrix product, in the order of the inner index; sums along a row in sixteen
   interleaved parts; gradients over (sequence, position) ascending. Threads and vectors split outputs, never sums: each
   instruction set gives the bits of the plain loops. exp, tanh, log, sin and cos are mod.h's own. With MOD_FAST_FMA the
   fused levels agree with each other, not with the others. Not promised: MOD_USE_DOUBLE, fast-math, x87 arithmetic,
   flushed denormals, and clang's -ffp-contract=fast (mod_build_info() tells). NaN payloads and signs are not promised.

   Files are safetensors: eight bytes of header length, a JSON header, then the numbers, little-endian on every machine.
   Settings stand in the header's metadata under "mod.": whole numbers in decimal, others as the 16 hex digits of a
   double's bits, so that no locale and no rounding touches them. With a trainer the file also holds AdamW's moments
   ("adam.m.*", "adam.v.*") and its state: training goes on from it to the bit. A reader believes nothing: every
   length is compared with the file's before memory is asked for, and a file that does not fit changes nothing.

   Threads. Say n_threads when you make a tape or a trainer; default 1. OpenMP runs them if compiled in, or your own
   pool through mod_jobs; the library starts none by itself. An object is used by one caller at a time. OpenMP's threads
   may spin while they wait: on a machine that does other work too, set OMP_WAIT_POLICY=passive.

   C++. The header compiles as C++11. Write `mod_config cfg = {};` and assign the fields.
*/

#ifndef MOD__LEVEL /* defined where this file includes itself for its last section, >>simd */
#ifndef MOD_H_MIXTURE_OF_DEPTHS
#define MOD_H_MIXTURE_OF_DEPTHS

#include <stddef.h>
#include <stdint.h>

#define MOD_H_VERSION 400 /* major * 10000 + minor * 100 + patch */

#if defined(__GNUC__)
#define MOD__UNUSED __attribute__((__unused__)) /* no warning about a function that this program does not call */
#else
#define MOD__UNUSED
#endif
#ifndef MODDEF
#ifdef MOD_STATIC
#define MODDEF MOD__UNUSED static
#else
#define MODDEF extern
#endif
#endif

#if defined(MOD_STATIC) && !defined(MOD_IMPLEMENTATION)
#error "mod.h: MOD_STATIC makes every function private to a file, so that file must define MOD_IMPLEMENTATION too"
#endif
#ifdef MOD_IMPL
#error "mod.h: the macro is MOD_IMPLEMENTATION"
#endif
#if defined(MOD_MALLOC) != defined(MOD_FREE)
#error "mod.h: define both MOD_MALLOC and MOD_FREE, or neither"
#endif

#ifdef MOD_USE_DOUBLE /* the names differ, so that files built with and without it fail to link */
typedef double mod_real;
#define mod_tape_init mod_tape_init_f64
#define mod_tape_create mod_tape_create_f64
#define mod_model_init mod_model_init_f64
#define mod_model_create mod_model_create_f64
#define mod_route_topk mod_route_topk_f64
#define mod_route_threshold mod_route_threshold_f64
#define mod_route_choose mod_route_choose_f64
#define mod_sample mod_sample_f64
#define mod_leaf mod_leaf_f64
#define mod_model_params mod_model_params_f64
#define mod_model_param mod_model_param_f64
#define mod_forward_logits mod_forward_logits_f64
#define mod_trainer_grads mod_trainer_grads_f64
#define mod_adamw mod_adamw_f64
#define mod_session_logits mod_session_logits_f64
#define mod_session_feed_rows mod_session_feed_rows_f64
#define mod_file_read mod_file_read_f64
#else
typedef float mod_real;
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* =================================================================================================================
   >>api-base  Results, errors, plumbing
   ================================================================================================================= */

#define MOD__RESULTS(X)                                       \
   X(OK, 0)       /* done                                  */ \
   X(ARG, -1)     /* an argument is NULL or out of range   */ \
   X(CONFIG, -2)  /* settings that make no model           */ \
   X(SHAPE, -3)   /* tensors that do not fit together      */ \
   X(MEMORY, -4)  /* memory too small, or none to be had   */ \
   X(ALIGN, -5)   /* memory not aligned to 8 bytes         */ \
   X(RANGE, -6)   /* a token or target that does not exist */ \
   X(NUMERIC, -7) /* NaN, or a loss that is not finite     */ \
   X(STATE, -8)   /* not at this point                     */ \
   X(FULL, -9)    /* no room for more                      */ \
   X(IO, -10)     /* a read, write or rename has failed    */ \
   X(FORMAT, -11) /* a file that is not what it should be  */ \
   X(VERSION, -12) /* a file of a later version             */
#define MOD__RESULT_ENUM(name, value) MOD_RESULT_##name = value,
typedef enum mod_result { MOD__RESULTS(MOD__RESULT_ENUM) MOD_RESULT_LAST = -12 } mod_result;
#undef MOD__RESULT_ENUM

/* What went wrong. Functions that take a `mod_error *` accept NULL, and set it on success too (MOD_RESULT_OK). */
typedef struct mod_error {
   mod_result code;
   const char *message; /* a constant sentence */
   int block;           /* block counted from 0; -1: none in particular */
   int64_t where;       /* position, element, token or dimension that the sentence speaks of; -1: none */
} mod_error;

/* Your allocator. alloc returns memory aligned to 8 bytes or NULL. Only functions that create, open,
   destroy or close call it. */
typedef struct mod_allocator {
   void *(*alloc)(size_t size, void *user);
   void (*free)(void *memory, void *user);
   void *user;
} mod_allocator;

/* Your thread pool. run calls task(arg, i) for every i in [0, n_tasks), in any order, and returns when all are done. */
typedef void (*mod_task)(void *arg, int i);
typedef struct mod_jobs {
   void (*run)(mod_task task, void *arg, int n_tasks, void *user); /* NULL: OpenMP, or one after the other */
   void *user;
} mod_jobs;

/* Instruction sets that there is code for: SSE2, AVX2, AVX-512 on x86-64, NEON on AArch64, SIMD128 in WebAssembly; by
   gcc 8 and later (for Windows SSE2 only) and clang; others have the scalar loops. The bits do not depend on it, but
   for MOD_FAST_FMA: then AVX2, AVX-512 and NEON fuse the steps of products. A desc can force MOD_SIMD_SCALAR, the best
   or, on x86-64, a level below that; any other is MOD_RESULT_ARG. */
typedef enum mod_simd {
   MOD_SIMD_BEST, /* chosen when a tape, trainer or session is initialised, by what the processor has */
   MOD_SIMD_SCALAR,
   MOD_SIMD_SSE2,
   MOD_SIMD_AVX2,
   MOD_SIMD_AVX512,
   MOD_SIMD_NEON,
   MOD_SIMD_WASM128
} mod_simd;

/* The best of this build on this processor; and a level's name, a constant string ("unknown" if it is none). */
MODDEF mod_simd mod_simd_best(void);
MODDEF const char *mod_simd_name(mod_simd level);

/* A stack of bytes over your memory. With base NULL it only counts. Pieces start at multiples of 16 from base. */
typedef struct mod_arena {
   unsigned char *base;
   size_t size, used, peak; /* peak: the largest `used` so far */
} mod_arena;

/* MOD_H_VERSION of the implementation. */
MODDEF int mod_version(void);

/* One line: version, number type, OpenMP or not, the best instruction set, and whether the same-bits promise holds in
   this build on this machine. */
MODDEF const char *mod_build_info(void);

/* "SHAPE" for MOD_RESULT_SHAPE; "UNKNOWN" for what is no result. */
MODDEF const char *mod_result_name(mod_result result);

/* Arena over `size` bytes at `memory` (aligned to 8), or, with memory NULL, one that counts up to `size`. */
MODDEF mod_result mod_arena_init(mod_arena *arena, void *memory, size_t size, mod_error *err);
/* Takes count * size bytes, rounded up to a multiple of 16, into *out (NULL while counting). Fails, changing nothing,
   if they are not there. */
MODDEF mod_result mod_arena_push(mod_arena *arena, size_t count, size_t size, void **out, mod_error *err);
/* Gives back everything pushed since `used` was `mark`. */
MODDEF mod_result mod_arena_rewind(mod_arena *arena, size_t mark, mod_error *err);

/* =================================================================================================================
   >>api-config  Configuration of a model: what a model file stores
   ================================================================================================================= */

typedef enum mod_norm { MOD_NORM_DEFAULT, MOD_NORM_RMS, MOD_NORM_LAYER } mod_norm;
typedef enum mod_position { MOD_POSITION_DEFAULT, MOD_POSITION_ROPE, MOD_POSITION_LEARNED } mod_position;
typedef enum mod_activation {
   MOD_ACTIVATION_DEFAULT,
   MOD_ACTIVATION_GELU,  /* mlp(x) = gelu(x W1) W2, the tanh form of gelu */
   MOD_ACTIVATION_RELU,  /* mlp(x) = relu(x W1) W2 */
   MOD_ACTIVATION_SWIGLU /* mlp(x) = (silu(x Wg) * x W1) W2 */
} mod_activation;
typedef enum mod_bias_use { MOD_BIAS_DEFAULT, MOD_BIAS_OFF, MOD_BIAS_ON } mod_bias_use;
typedef enum mod_head {
   MOD_HEAD_DEFAULT,
   MOD_HEAD_TIED,      /* next token: logits = x E^T with the embedding E */
   MOD_HEAD_UNTIED,    /* next token: logits = x W with a matrix of its own */
   MOD_HEAD_CLASS,     /* one of n_outputs classes for a sequence: logits = pool(x) W; pool is the last row or, in a
                          model that is not causal, the mean of all rows */
   MOD_HEAD_REGRESSION /* n_outputs numbers for a sequence: pool(x) W; the loss is the mean squared error */
} mod_head;
typedef enum mod_mask { MOD_MASK_CAUSAL, MOD_MASK_FULL } mod_mask; /* who sees whom in attention; FULL: an encoder */

/* g(r): what the router's score r multiplies the block's delta with. */
typedef enum mod_gate_kind {
   MOD_GATE_DEFAULT,
   MOD_GATE_RAW,     /* r, the paper's equation 1 */
   MOD_GATE_SIGMOID, /* 1 / (1 + exp(-r)) */
   MOD_GATE_TANH,    /* 1 + a tanh(r): the identity at r = 0 */
   MOD_GATE_ONE      /* 1: the router learns nothing from the loss */
} mod_gate_kind;

/* Which tokens a block takes. */
typedef enum mod_select {
   MOD_SELECT_DEFAULT,
   MOD_SELECT_ALL,        /* a dense block: no router, no selection */
   MOD_SELECT_LEARNED,    /* expert-choice: the k best by the router's score; causally, by the deciding logit */
   MOD_SELECT_STOCHASTIC, /* the paper's control: the best of random scores; causally, each token with probability c;
                             gate 1, no router, no predictor */
   MOD_SELECT_TOKEN,      /* token-choice, which the paper rejects: a softmax over block and bypass; who prefers the
                             block enters it, in order of position, while fewer than k of `context` tokens have; gate:
                             its probability */
   MOD_SELECT_EVERY,      /* control by position: every ceil(1/c)-th, from the first on; gate 1 */
   MOD_SELECT_FIRST,      /* control by position: the first k of `context` tokens; gate 1 */
   MOD_SELECT_NONE,       /* nobody */
   MOD_SELECT_SAME        /* of keys and values only: those that the block takes */
} mod_select;

/* What becomes of the tokens that a block with a router passes by. */
typedef enum mod_bypass {
   MOD_BYPASS_DEFAULT,
   MOD_BYPASS_IDENTITY, /* y = x */
   MOD_BYPASS_GATED     /* y = g(r) x, that is x + a tanh(r) x, in blocks with MOD_SELECT_LEARNED, whose gate must be
                           MOD_GATE_TANH (paper, section 3.4) */
} mod_bypass;

/* What stands in a block as MLP. */
typedef enum mod_mlp_kind {
   MOD_MLP_DEFAULT,
   MOD_MLP_PLAIN,
   MOD_MLP_MOE, /* n_experts MLPs behind a router; in a block that selects tokens: staged MoDE */
   MOD_MLP_MODE /* integrated MoDE: its router has n_noops ways past the experts too */
} mod_mlp_kind;

/* Who chooses, tokens or experts. Weight: the softmax of the router over experts and no-ops, never renormalised. */
typedef enum mod_choice {
   MOD_CHOICE_DEFAULT,
   MOD_CHOICE_TOKEN, /* each token its `choices` best; an expert has ceil(f choices n / E) slots, n: what the block
                        takes of a full context; given in order of position; who finds none is dropped: no MLP for it */
   MOD_CHOICE_EXPERT /* each expert its ceil(f n / E) best tokens of a sequence; causally, by a deciding logit each */
} mod_choice;

/* Who decides in causal mode, and is trained for it in top-k mode. */
typedef enum mod_causal {
   MOD_CAUSAL_DEFAULT,
   MOD_CAUSAL_PREDICTOR, /* a predictor on the stopped gradient: leaves the language model untouched */
   MOD_CAUSAL_ROUTER,    /* the router's own score, by the auxiliary loss on it (paper, section 3.5, first way) */
   MOD_CAUSAL_BOTH,      /* both are trained; the predictor decides */
   MOD_CAUSAL_NONE       /* neither is trained; the router's score decides */
} mod_causal;

/* Settings of one block, for mod_config.blocks; zero: as the config says. */
typedef struct mod_block_config {
   int select;      /* mod_select */
   int gate;        /* mod_gate_kind */
   double capacity; /* in (0, 1] */
   int kv_select;   /* mod_select, but MOD_SELECT_TOKEN */
   int kv_gate;     /* mod_gate_kind */
   double kv_capacity; /* in (0, 1] */
   int mlp;         /* mod_mlp_kind */
   int choice;      /* mod_choice */
} mod_block_config;

/* A zeroed field takes the default written beside it. */
typedef struct mod_config {
   int vocab_size; /* required, but for float rows in and a class or numbers out: number of token ids */
   int context;    /* required: longest sequence */
   int n_layers;   /* required: number of blocks */
   int d_model;    /* required: width of a row */
   int n_heads;    /* 0 = d_model / 64, at least 1; must divide d_model */
   int n_kv_heads; /* 0 = n_heads; must divide n_heads (grouped-query attention) */
   int d_ff;       /* 0 = 4 * d_model; SwiGLU: 8/3 * d_model rounded up to a multiple of 16 */
   int norm;       /* mod_norm; 0 = RMS */
   int position;   /* mod_position; 0 = RoPE */
   int activation; /* mod_activation; 0 = GELU */
   int bias;       /* mod_bias_use; 0 = off; on: the linear maps of attention and MLP, and LayerNorm, have one */
   int head;       /* mod_head; 0 = tied */
   int mask;       /* mod_mask; 0 = causal; full: has top-k mode only, needs no predictor and no session */
   int n_inputs;   /* 0 = token ids; else a token is so many floats, x = input W, and the head is not tied */
   int n_outputs;  /* of a class or regression head, which require it */

   int select;         /* mod_select of the routed blocks; 0 = learned, with MOD_MLP_MODE all */
   int route_first;    /* 0 = 2: the first routed block, counted from 1 (names, errors and statistics count from 0) */
   int route_every;    /* 0 = 2: every second block from there on */
   double capacity;    /* 0 = 0.125: share of the tokens that a routed block takes */
   int gate;           /* mod_gate_kind; 0 = raw */
   double gate_scale;  /* 0 = 0.2: a in 1 + a tanh(r) */
   int bypass;         /* mod_bypass; 0 = identity */
   int kv_select;      /* mod_select of the keys and values in the blocks that route_first and route_every name, even if
                          select is all (the paper's long-term memory); 0 = same: those that the block takes; any but
                          token: a selection of its own, with a router of its own if learned */
   int kv_gate;        /* mod_gate_kind; 0 = sigmoid: what the score of that router multiplies values with */
   double kv_capacity; /* 0 = capacity */
   int causal;         /* mod_causal; 0 = predictor */
   double router_loss; /* 0 = 0.01: weight of the auxiliary loss on the router */
   double predictor_loss; /* 0 = 1: weight of the predictor's loss */

   int mlp;                /* mod_mlp_kind of all blocks; 0 = plain */
   int n_experts;          /* 0 = 4: E, at most 64 */
   int n_noops;            /* 0 = n_experts: of MOD_MLP_MODE, at most 64 */
   int choice;             /* mod_choice; 0 = token, in blocks that select tokens expert */
   int choices;            /* 0 = 1: experts of a token in token-choice; 1 or 2 */
   double capacity_factor; /* 0 = 1: f of MOD_MLP_MOE; below 1 it relies on dropping. MOD_MLP_MODE: f is the capacity */
   double balance_loss;    /* 0 = 0.01: weight of token-choice's load-balancing loss (Fedus et al. 2021, equation 4) */
   double z_loss;          /* 0 = 0.001: weight of token-choice's router z-loss (Zoph et al. 2022, equation 5) */

   double norm_eps;  /* 0 = 1e-5 */
   double rope_base; /* 0 = 10000 */
   const mod_block_config *blocks; /* NULL, or [n_layers]: overrides block by block; copied by mod_model_init */
} mod_config;

/* The config with every default filled in (but `choice`, which depends on the block: see mod_config_block). NULL gives
   a zeroed config. Does not check. */
MODDEF mod_config mod_config_resolve(const mod_config *cfg);
/* MOD_RESULT_CONFIG and a sentence naming the field, if no model can be made of it. */
MODDEF mod_result mod_config_check(const mod_config *cfg, mod_error *err);
/* The resolved settings of block `block` in [0, n_layers): dense blocks have select = MOD_SELECT_ALL, capacity 1.
   A block outside gives a zeroed struct. */
MODDEF mod_block_config mod_config_block(const mod_config *cfg, int block);
/* Rows of mod_model_thresholds: paths that any block has. Path 0: the block itself; 1: its keys and values, selected
   apart; 2 + e: its expert e, if experts choose. 0 for a config of which no model can be made. */
MODDEF int mod_config_paths(const mod_config *cfg);

/* =================================================================================================================
   >>api-rng  Random numbers: counter-based, a pure function of (seed, stream, index), never of call order
   ================================================================================================================= */

/* A stream number from a name such as "blocks.1.router". NULL is the empty name. */
MODDEF uint64_t mod_random_stream(const char *name);
/* A further stream number from a stream and a number: for keys such as (purpose, step, block). */
MODDEF uint64_t mod_random_substream(uint64_t stream, uint64_t number);
/* 64 random bits; a uniform number in [0, 1) with 53 bits; a normal number (mean 0, deviation 1; |x| < 6.8). */
MODDEF uint64_t mod_random_bits(uint64_t seed, uint64_t stream, uint64_t index);
MODDEF double mod_random_uniform(uint64_t seed, uint64_t stream, uint64_t index);
MODDEF double mod_random_normal(uint64_t seed, uint64_t stream, uint64_t index);

/* =================================================================================================================
   >>api-route  Routing on plain arrays: the algorithm itself, usable alone; no memory, no tape
   ================================================================================================================= */

/* k = clamp(floor(capacity * n_tokens + 1e-6), 1, n_tokens), in double: 0.29 of 200 is 58. 0 for no tokens.
   -1 for n_tokens < 0 or a capacity that is not in (0, 1]. Source: paper section 3.2 (C = k). */
MODDEF int mod_route_capacity(int n_tokens, double capacity);

/* kept[0 .. k-1] = the positions of the k largest of score[0 .. n-1], ascending. Ties go to the earlier position,
   -0 equals +0, +-inf are legal. NaN: MOD_RESULT_NUMERIC with its position, and nothing is written.
   0 <= k <= n. O(n). Not causal. Source: paper section 3.4, expert-choice. */
MODDEF mod_result mod_route_topk(const mod_real *score, int n, int k, int *kept, mod_error *err);

/* kept = the positions with score strictly above theta, ascending; *n_kept how many (0 .. n; kept has room for n).
   Each decision reads its own score only: causal. NaN as above, in theta too. Source: paper section 3.5. */
MODDEF mod_result mod_route_threshold(const mod_real *score, int n, double theta, int *kept, int *n_kept,
                                      mod_error *err);

/* Slots of one expert that takes this share of n rows, as capacity factor / E: ceil(share * n - 1e-6) in double, at
   most n. -1 for n < 0 or a share that is not above 0 and finite. */
MODDEF int mod_route_slots(int n, double share);

/* Token-choice: each of n rows, in order, goes to its `choices` best of n_paths paths, score [n, n_paths] (ties: the
   lower path); all choices of a row come before the next row. Path e has room for slots[e] rows (negative: for any
   number; slots NULL: all have); who finds none left is dropped there. used [n_paths]: how many rows each path holds
   already (0 at first), and then holds. path [n, choices]: the choices, the best first; slot [n, choices]: which slot
   each got, -1 if it was dropped. 1 <= choices <= n_paths. Causal: a row depends on earlier ones only. NaN:
   MOD_RESULT_NUMERIC with its row, and nothing is written. Source: paper figure 2, left. */
MODDEF mod_result mod_route_choose(const mod_real *score, int n, int n_paths, int choices, const int *slots, int *used,
                                   int *path, int *slot, mod_error *err);

/* =================================================================================================================
   >>api-tape  Tape: tensors and reverse-mode autograd
   ================================================================================================================= */

enum { MOD_TENSOR_MAX_DIM = 4, MOD_TENSOR_MAX_INPUTS = 3 };

typedef struct mod_tape mod_tape;
typedef struct mod_tensor mod_tensor;

/* Row-major numbers, and the record of the op that made them. Ops read a tensor of any dimension as a matrix: its
   last dimension is the columns, all before are the rows. Belongs to its tape; valid until reset, rewind or destroy. */
struct mod_tensor {
   int n_dim, dim[MOD_TENSOR_MAX_DIM];
   int n_max;      /* 0, or: dim[0] depends on the data and memory is reserved for n_max of it */
   mod_real *data; /* NULL while measuring */
   mod_real *grad; /* NULL: no gradient flows here */
   mod_tensor *in[MOD_TENSOR_MAX_INPUTS];
   void *saved; /* the op's own memory, kept for its backward pass */
   void *user;  /* custom ops: yours */
   void (*backward)(mod_tape *tape, mod_tensor *out); /* adds to in[i]->grad; NULL for leaves */
   const void *arg[2]; /* built-in ops: rows, ids, targets */
   int option[3];
   double value;
   mod_tensor *previous; /* made before this one */
};

/* Whose rows a tensor [n, ...] holds: which sequence, which position. */
typedef struct mod_rows {
   int n_seqs;     /* sequences */
   int n;          /* rows: those of sequence 0, then of sequence 1, ... */
   int n_max;      /* rows reserved, >= n */
   int length_max; /* rows reserved for one sequence */
   int ragged;     /* 1: n depends on the data */
   int *start;     /* [n_seqs + 1] sequence s has rows start[s] .. start[s+1] - 1 */
   int *position;  /* [n] position in the sequence, ascending within it */
   const struct mod_rows *parent; /* the rows that these were selected from; NULL: rows of their own */
   int *index;                    /* [n] which row of the parent each is; without a parent NULL */
} mod_rows;

typedef struct mod_tape_desc {
   int n_threads;    /* 0 = 1, at most 1024; a run never uses more; each has scratch memory of its own */
   int forward_only; /* 1: no gradients; a block's memory is used again by the next */
   int measure;      /* 1: count, compute nothing; memory is needed for the tensors' descriptions only */
   mod_simd simd;    /* 0 = the best there is; another for tests: the same bits, but see MOD_FAST_FMA */
   mod_jobs jobs;
} mod_tape_desc;

typedef struct mod_mark {
   size_t used, described;
   mod_tensor *last;
   const mod_tape *tape;
   uint64_t resets; /* of the tape until then */
} mod_mark;

/* A tape in your memory (aligned to 8 bytes). desc NULL: all defaults. NULL on failure. */
MODDEF mod_tape *mod_tape_init(const mod_tape_desc *desc, void *memory, size_t size, mod_error *err);
/* The same in one allocation; mod_tape_destroy gives it back (NULL: nothing to do). allocator NULL: MOD_MALLOC. */
MODDEF mod_tape *mod_tape_create(const mod_tape_desc *desc, size_t size, const mod_allocator *allocator,
                                 mod_error *err);
MODDEF void mod_tape_destroy(mod_tape *tape);
/* Forgets all tensors and the error. The peak stays. NULL: nothing to do. */
MODDEF void mod_tape_reset(mod_tape *tape);
/* Where the tape stands, and back to there: forgets the tensors made since, not an error. Marks nest: rewinding to
   one ends all that were made after it. One from before a reset, or beyond the present end, is refused. */
MODDEF mod_mark mod_tape_mark(const mod_tape *tape);
MODDEF mod_result mod_tape_rewind(mod_tape *tape, mod_mark mark, mod_error *err);
/* The tape's first error since its last reset, or MOD_RESULT_OK. */
MODDEF mod_result mod_tape_status(const mod_tape *tape, mod_error *err);
/* Most bytes in use so far, with everything; after a measuring run: the size that mod_tape_init needs. 0 for NULL. */
MODDEF size_t mod_tape_peak(const mod_tape *tape);
/* Floating-point operations of the forward ops since the last reset: 2 per multiply-add of matmuls and attention, at
   the row counts that occurred. Exact below 2^53. 0 for NULL. */
MODDEF double mod_tape_flops(const mod_tape *tape);
/* Reverse pass from `loss` (one element, with a gradient): d(loss)/d(leaf) is added to the grad of every leaf, other
   gradients are set. No recursion. Once per recording. On a measuring tape it counts what it would need. */
MODDEF mod_result mod_tape_backward(mod_tape *tape, mod_tensor *loss, mod_error *err);
/* Puts an error on the tape, unless it has one: for custom ops and networks of your own. `message` must be constant. */
MODDEF void mod_tape_fail(mod_tape *tape, mod_result code, const char *message, int64_t where);

/* =================================================================================================================
   >>api-ops  Ops: compute at once, record themselves, return NULL on a failed tape
   ================================================================================================================= */

/* Your numbers as a tensor, not copied. grad NULL: a constant; else gradients are added there. dim has n_dim in [1, 4]
   entries >= 0. data may be NULL on a measuring tape. */
MODDEF mod_tensor *mod_leaf(mod_tape *tape, mod_real *data, mod_real *grad, int n_dim, const int *dim);

/* a [.., m, k] . b [k, n] -> [.., m, n];  a [m, k] . b^T, b [n, k] -> [m, n];  a^T . b, a [k, m], b [k, n] -> [m, n] */
MODDEF mod_tensor *mod_matmul(mod_tape *tape, mod_tensor *a, mod_tensor *b);
MODDEF mod_tensor *mod_matmul_nt(mod_tape *tape, mod_tensor *a, mod_tensor *b);
MODDEF mod_tensor *mod_matmul_tn(mod_tape *tape, mod_tensor *a, mod_tensor *b);

/* Element by element. b has a's shape, or is one row [n] or [1, n], or one column [rows, 1]; then it is broadcast. */
MODDEF mod_tensor *mod_add(mod_tape *tape, mod_tensor *a, mod_tensor *b);
MODDEF mod_tensor *mod_sub(mod_tape *tape, mod_tensor *a, mod_tensor *b);
MODDEF mod_tensor *mod_mul(mod_tape *tape, mod_tensor *a, mod_tensor *b);
/* x + b with b [n], on every row. */
MODDEF mod_tensor *mod_bias(mod_tape *tape, mod_tensor *x, mod_tensor *b);
/* s x, with a constant s (finite). */
MODDEF mod_tensor *mod_scale(mod_tape *tape, mod_tensor *x, double s);

MODDEF mod_tensor *mod_exp(mod_tape *tape, mod_tensor *x);
MODDEF mod_tensor *mod_log(mod_tape *tape, mod_tensor *x);
MODDEF mod_tensor *mod_gelu(mod_tape *tape, mod_tensor *x); /* tanh form */
MODDEF mod_tensor *mod_silu(mod_tape *tape, mod_tensor *x); /* x sigmoid(x) */
MODDEF mod_tensor *mod_relu(mod_tape *tape, mod_tensor *x);
MODDEF mod_tensor *mod_sigmoid(mod_tape *tape, mod_tensor *x);
MODDEF mod_tensor *mod_tanh(mod_tape *tape, mod_tensor *x);

/* Along the last dimension. gain and bias are [columns]; gain (and for LayerNorm bias) may be NULL. eps > 0. */
MODDEF mod_tensor *mod_softmax(mod_tape *tape, mod_tensor *x);
MODDEF mod_tensor *mod_rmsnorm(mod_tape *tape, mod_tensor *x, mod_tensor *gain, double eps);
MODDEF mod_tensor *mod_layernorm(mod_tape *tape, mod_tensor *x, mod_tensor *gain, mod_tensor *bias, double eps);

/* Rows ids[0 .. n-1] of table [vocab, d] -> [n, d]. The ids are not copied: keep them until after backward. An id
   outside is MOD_RESULT_RANGE. Backward adds rows in order. */
MODDEF mod_tensor *mod_embedding(mod_tape *tape, mod_tensor *table, const int *ids, int n);

/* (cos, sin) of position * base^(-2 i / head_dim), in double, rounded once, for the positions first .. first + n - 1:
   [n, head_dim]. */
MODDEF mod_tensor *mod_rope_table(mod_tape *tape, int first, int n, int head_dim, double base);
/* Rotates adjacent pairs of every head of x [rows->n, heads * head_dim] by its row's position. table: as above. */
MODDEF mod_tensor *mod_rope(mod_tape *tape, mod_tensor *x, const mod_rows *rows, mod_tensor *table);

/* Multi-head attention, softmax(q k^T / sqrt(head_dim)) v, within each sequence. q [q_rows->n, n_heads * hd];
   k, v [kv_rows->n, n_kv_heads * hd]; n_kv_heads divides n_heads; -> like q. MOD_MASK_CAUSAL: a query sees the keys at
   its position and before. A query that sees no key gives 0. Memory: linear in the sequence. */
MODDEF mod_tensor *mod_attention(mod_tape *tape, mod_tensor *q, mod_tensor *k, mod_tensor *v, const mod_rows *q_rows,
                                 const mod_rows *kv_rows, int n_heads, int n_kv_heads, mod_mask mask);

/* Rows of n_seqs sequences of up to `length` tokens. lengths NULL: all full; else [n_seqs], 0 <= lengths[s] <= length,
   and only these rows exist: padding is never computed. */
MODDEF mod_rows *mod_rows_make(mod_tape *tape, int n_seqs, int length, const int *lengths);
/* Of each sequence the k = mod_route_capacity(its length, capacity) rows with the largest score. score [rows->n, 1].
   The selection is a constant: no gradient flows through it. NaN: MOD_RESULT_NUMERIC with the position. */
MODDEF mod_rows *mod_rows_topk(mod_tape *tape, const mod_rows *rows, mod_tensor *score, double capacity);
/* The rows with score strictly above theta. */
MODDEF mod_rows *mod_rows_threshold(mod_tape *tape, const mod_rows *rows, mod_tensor *score, double theta);
/* The rows that are not in `kept`, a selection of them. */
MODDEF mod_rows *mod_rows_others(mod_tape *tape, const mod_rows *rows, const mod_rows *kept);
/* Token-choice, sequence by sequence, as mod_route_choose: score [rows->n, paths]. The first n_experts paths have
   `slots` slots for each sequence and out[0 .. n_experts-1] become their rows; the other paths are ways past them all,
   without limit. used: NULL, or [paths], for one sequence that comes in pieces. chosen: NULL, or [n_seqs, paths]: how
   many rows wanted each path; not written while measuring. NaN: MOD_RESULT_NUMERIC with the position. 0 on failure. */
MODDEF int mod_rows_choose(mod_tape *tape, const mod_rows *rows, mod_tensor *score, int choices, int n_experts,
                           int slots, int *used, int *chosen, mod_rows **out);
/* [rows->n] bytes: 1 where a row of `rows` is in `kept`, a selection of it. NULL on failure and while measuring. */
MODDEF unsigned char *mod_rows_mask(mod_tape *tape, const mod_rows *rows, const mod_rows *kept);

/* y_j = x_(index j): the rows `kept` of x. Of rows that are no selection: x itself, with a gradient of its own; what is
   made from it reserves memory for as many rows as there may be. */
MODDEF mod_tensor *mod_gather(mod_tape *tape, mod_tensor *x, const mod_rows *kept);
/* y = x, and y_(index j) += weight_j delta_j: delta [kept->n, d], weight [kept->n, 1] or NULL for 1. Other rows are
   copied bit for bit. */
MODDEF mod_tensor *mod_scatter_add(mod_tape *tape, mod_tensor *x, mod_tensor *delta, mod_tensor *weight,
                                   const mod_rows *kept);
/* g(r), element by element; a: the scale of MOD_GATE_TANH. */
MODDEF mod_tensor *mod_gate(mod_tape *tape, mod_tensor *r, mod_gate_kind kind, double a);
/* x, through which no gradient flows. */
MODDEF mod_tensor *mod_stop_grad(mod_tape *tape, mod_tensor *x);

/* Dropout (Srivastava et al. 2014): each element of x [rows->n, d] becomes 0 with probability p, 0 <= p < 1, else
   x / (1 - p). The draw is a function of (seed, stream, first_id + sequence, position, column), whatever rows are there
   beside it. */
MODDEF mod_tensor *mod_dropout(mod_tape *tape, mod_tensor *x, const mod_rows *rows, double p, uint64_t seed,
                               uint64_t stream, uint64_t first_id);

/* log sum_j exp(x_ij), along the last dimension -> [.., 1]. NaN where a row has +inf, or nothing but -inf. */
MODDEF mod_tensor *mod_logsumexp(mod_tape *tape, mod_tensor *x);

typedef enum mod_pool_kind { MOD_POOL_MEAN, MOD_POOL_LAST } mod_pool_kind;
/* One row for each sequence of x [rows->n, d]: the mean of its rows, or its last one; 0 where there is none.
   -> [n_seqs, d] */
MODDEF mod_tensor *mod_pool(mod_tape *tape, mod_tensor *x, const mod_rows *rows, mod_pool_kind kind);

/* Sum and mean of all elements -> [1]. Accumulated in double, in order. The mean of nothing is 0. */
MODDEF mod_tensor *mod_sum(mod_tape *tape, mod_tensor *x);
MODDEF mod_tensor *mod_mean(mod_tape *tape, mod_tensor *x);
/* -log softmax(logits)[target], summed over the rows with target >= 0 (-1: ignored) and divided by count -> [1].
   logits [n, classes]; targets [n], not copied. count 0: the number of those rows. The mean before rounding is in
   ->value. */
MODDEF mod_tensor *mod_cross_entropy(mod_tape *tape, mod_tensor *logits, const int *targets, double count);
/* Binary cross-entropy of sigmoid(logits) with targets 0 or 1, summed and divided by count (0: their number) -> [1].
   targets: one byte for each element, not copied. The mean before rounding is in ->value. */
MODDEF mod_tensor *mod_bce_logits(mod_tape *tape, mod_tensor *logits, const unsigned char *targets, double count);

/* The same elements in another shape (shares data and gradient). */
MODDEF mod_tensor *mod_reshape(mod_tape *tape, mod_tensor *x, int n_dim, const int *dim);
/* Exchanges two dimensions. */
MODDEF mod_tensor *mod_transpose(mod_tape *tape, mod_tensor *x, int dim_a, int dim_b);
/* `count` entries from `first` on along a dimension. */
MODDEF mod_tensor *mod_slice(mod_tape *tape, mod_tensor *x, int dim, int first, int count);
/* a, then b, along a dimension. */
MODDEF mod_tensor *mod_concat(mod_tape *tape, mod_tensor *a, mod_tensor *b, int dim);

/* An op of your own. forward fills out->data from out->in[i]->data (not called while measuring); backward, which may be
   NULL, adds to out->in[i]->grad where that is not NULL. Both see out->user and out->saved (saved_bytes, zeroed). */
typedef struct mod_custom_desc {
   int n_in;
   mod_tensor *in[MOD_TENSOR_MAX_INPUTS];
   int n_dim, dim[MOD_TENSOR_MAX_DIM]; /* of the output */
   int by_rows; /* 1: it has as many rows, dim[0], as in[0], be they given or dependent on the data */
   size_t saved_bytes;
   void (*forward)(mod_tape *tape, mod_tensor *out);
   void (*backward)(mod_tape *tape, mod_tensor *out);
   void *user;
} mod_custom_desc;
MODDEF mod_tensor *mod_custom(mod_tape *tape, const mod_custom_desc *desc);

/* =================================================================================================================
   >>api-model  Model: named parameters in one flat buffer, and the forward pass
   ================================================================================================================= */

typedef struct mod_model mod_model;
typedef struct mod_train_desc mod_train_desc;

/* A named parameter: a view into the model's flat buffer. */
typedef struct mod_param {
   const char *name; /* "embed", "blocks.1.attn.wq", "blocks.1.router", ... */
   int n_dim, dim[3]; /* a matrix is [in, out]; of experts [n_experts, in, out] */
   size_t offset, count; /* in numbers, into mod_model_params and the gradient */
   int decay;     /* 1: weight decay applies */
   int predictor; /* 1: belongs to a predictor, and to its clip group */
   mod_real *data;
} mod_param;

/* Bytes and counts, before anything is allocated. */
typedef struct mod_plan {
   size_t n_params;    /* numbers */
   size_t params;      /* bytes of the parameters */
   size_t model;       /* bytes for mod_model_init: parameters, names, settings */
   size_t grads;       /* bytes of the gradient */
   size_t optimizer;   /* bytes of AdamW's moments */
   size_t activations; /* bytes of the training tape */
   size_t trainer;     /* bytes for mod_trainer_init: gradient, moments, tape */
} mod_plan;

typedef enum mod_mode {
   MOD_MODE_TOPK,  /* blocks and experts that choose take their best tokens: for training; looks at later tokens */
   MOD_MODE_CAUSAL /* a token is decided by itself and what came before: for evaluation and sampling */
} mod_mode;

/* Places at which a probe sees a block. */
typedef enum mod_site {
   MOD_SITE_INPUT,     /* x [n, d]: the block's input */
   MOD_SITE_SCORE,     /* r [n, 1]: the router's scores, or random ones; of MOD_SELECT_TOKEN [n, 2]: block, bypass */
   MOD_SITE_PREDICTOR, /* [n, 1]: the predictor's logits */
   MOD_SITE_KEPT,      /* rows only: the rows that entered (x is NULL) */
   MOD_SITE_ATTENTION, /* h [kept, d] */
   MOD_SITE_MLP,       /* m [kept, d] */
   MOD_SITE_OUTPUT,    /* y [n, d] */
   MOD_SITE_KV_SCORE,  /* the same three of keys and values, where they are selected apart */
   MOD_SITE_KV_PREDICTOR,
   MOD_SITE_KV_KEPT,
   MOD_SITE_EXPERT_SCORE,     /* [kept, n_experts + n_noops]: logits of the experts' router */
   MOD_SITE_EXPERT_PREDICTOR, /* [kept, n_experts] */
   MOD_SITE_EXPERT_KEPT,      /* the rows of one expert, as a selection of the kept rows; once for each, in order */
   MOD_SITE_LOGITS     /* [n, vocab_size], or [n_seqs, n_outputs]; block is n_layers */
} mod_site;
typedef void (*mod_probe)(void *user, int block, mod_site site, const mod_rows *rows, const mod_tensor *x);

/* Sequences to run. Nothing is copied: keep the arrays until after backward. */
typedef struct mod_batch {
   int n_seqs, length;
   const int *tokens;  /* [n_seqs, length] */
   const int *targets; /* [n_seqs, length]: the token that should follow; or [n_seqs]: the class; -1: none. NULL: no
                          loss */
   const mod_real *inputs; /* instead of tokens, with n_inputs: [n_seqs, length, n_inputs] */
   const mod_real *values; /* instead of targets, of a regression head: [n_seqs, n_outputs]. NULL: no loss */
   const int *lengths; /* NULL, or [n_seqs]: real tokens of each; what follows them is padding and is never read */
   int mode;           /* mod_mode */
   /* For one of several micro-batches: the whole step's targets >= 0 (of a regression: values) and real tokens. 0: this
      batch's. */
   int64_t n_targets, n_tokens;
   /* For training in top-k mode: no block takes a smaller share than this, in [0, 1]; the probability of dropout, in
      [0, 1), of what embedding, attention and MLP give: */
   double least_capacity, dropout;
   /* Keys of random draws (stochastic selection, dropout): */
   uint64_t seed, step, first_id; /* sequence s has id first_id + s */
   mod_probe probe;               /* NULL, or called during the forward pass; not while measuring */
   void *probe_user;
} mod_batch;

/* How the deciding logits of a router agree with what the top-k took. Counted in top-k mode, where there is a deciding
   logit: accuracy = agree / tokens (always saying 'skip' has 1 - kept / tokens), precision = hits / predicted,
   recall = hits / kept. */
typedef struct mod_path_stats {
   int64_t tokens, kept; /* decisions, and those that took the row; of experts that choose the sum over them */
   int decided;          /* 1: the three counts below hold */
   int64_t predicted, hits, agree; /* deciding logit above theta; of these kept; decisions equal to the top-k's */
} mod_path_stats;

/* What happened in one block. */
typedef struct mod_block_stats {
   int routed; /* 0: it takes every token */
   int64_t tokens, kept;
   int decided; /* 1: the three counts below hold */
   int64_t predicted, hits, agree; /* as in mod_path_stats */
   mod_path_stats kv, experts;     /* of these routers; of token-choice see dropped and mod_forward.expert_rows */
   int64_t keys, pairs; /* rows that were keys and values, and pairs of query and key that it saw */
   int64_t mlp_rows;    /* rows through the MLP, or through all experts */
   int64_t dropped;     /* token-choice: choices of the block or an expert that found no slot; expert-choice: rows that
                           no expert took */
} mod_block_stats;

/* What a forward pass gave. Pointers live on the tape. */
typedef struct mod_forward {
   mod_tensor *logits; /* [rows->n, vocab_size], real tokens only: sequence s, position i is row rows->start[s] + i; of
                          a class or regression head [n_seqs, n_outputs] */
   mod_tensor *loss;   /* to differentiate: cross-entropy and the weighted auxiliary losses; NULL without targets or
                          gradients */
   const mod_rows *rows;
   int pooled;                       /* 1: the logits have a row for each sequence, not for each token */
   double cross_entropy;             /* nats per target; of a regression the mean squared error */
   double router_bce, predictor_bce; /* means over tokens, paths and routers, unweighted; 0 where there is none */
   double balance_loss, z_loss;      /* of token-choice: of each sequence E sum_e f_e P_e, with f_e the share of choices
                                        and P_e the mean probability of path e of E, and the mean of (log sum exp of the
                                        logits)^2; sequences count by their tokens, of which those that did not enter
                                        the block add 0; means over such routers. 0 in causal mode, as are the two
                                        above */
   double flops_blocks, flops_head;  /* of this forward pass, as counted */
   const mod_block_stats *blocks;    /* [n_layers] */
   const int *kept;                  /* [n_layers, n_seqs] tokens that entered */
   const int *expert_rows;           /* [n_layers, n_experts] (resolved) rows that each took; NULL without experts */
   int64_t n_tokens, n_targets;      /* of this batch */
   int64_t skipped;                  /* tokens that every routed block passed by; 0 if none is routed */
} mod_forward;

/* How many bytes. `how` gives the shape of the training batches (NULL: defaults). */
MODDEF mod_result mod_model_plan(const mod_config *cfg, const mod_train_desc *how, mod_plan *plan, mod_error *err);
/* A model in your memory (aligned to 8, plan.model bytes). Parameters are zero. NULL on failure. */
MODDEF mod_model *mod_model_init(const mod_config *cfg, void *memory, size_t size, mod_error *err);
MODDEF mod_model *mod_model_create(const mod_config *cfg, const mod_allocator *allocator, mod_error *err);
MODDEF void mod_model_destroy(mod_model *model);
/* Random initial weights, keyed by (seed, tensor's name, element): matrices of attention and MLP N(0, 1/sqrt(inputs)),
   those that write to the residual times 1/sqrt(2 n_layers); all others, routers too, N(0, 0.02); norms 1, biases 0;
   predictors start at the base rate. Thresholds 0. */
MODDEF mod_result mod_model_randomize(mod_model *model, uint64_t seed, mod_error *err);

/* The resolved config, whose blocks point into the model. A zeroed one for NULL. */
MODDEF mod_config mod_model_config(const mod_model *model);
/* The flat parameter buffer, and its length in numbers. NULL for NULL. */
MODDEF mod_real *mod_model_params(const mod_model *model, size_t *count);
/* theta [mod_config_paths][n_layers], path 0 first: causal mode keeps a token iff its deciding logit is strictly above.
   Yours to set. */
MODDEF double *mod_model_thresholds(const mod_model *model);
/* Parameters by index in [0, count) in stored order, or by name (-1 if there is none). */
MODDEF int mod_model_param_count(const mod_model *model);
MODDEF mod_result mod_model_param(const mod_model *model, int index, mod_param *out, mod_error *err);
MODDEF int mod_model_find(const mod_model *model, const char *name);

/* Bytes of a tape for mod_model_forward (and, unless desc->forward_only, its backward) over batches of this shape and
   mode: which of the modes needs more depends on the scheme. Targets cost memory: plan with targets set (any pointer)
   if you will give them. Reads lengths, but no token. */
MODDEF mod_result mod_forward_plan(const mod_config *cfg, const mod_batch *shape, const mod_tape_desc *desc,
                                   size_t *bytes, mod_error *err);
/* Runs the model over the batch, on a tape that you have reset. grads: NULL, or a flat buffer like mod_model_params to
   which mod_tape_backward(tape, out->loss) will add. The error of the tape is the result. NaN as a score:
   MOD_RESULT_NUMERIC with block and position. Untrusted tokens are refused, not trusted. */
MODDEF mod_result mod_model_forward(const mod_model *model, mod_tape *tape, mod_real *grads, const mod_batch *batch,
                                    mod_forward *out, mod_error *err);
/* Copies the logits of a next-token head to out [n_seqs, length, vocab_size]; rows of padding are 0. `forward` must
   come from `batch`. */
MODDEF mod_result mod_forward_logits(const mod_forward *forward, const mod_batch *batch, mod_real *out, mod_error *err);

/* Sets the thresholds from held-out text: a top-k pass over `batch` (no dropout; its mode is ignored) on a tape that
   you have reset, planned for it in MOD_MODE_TOPK. theta of a block becomes the (k + 1)-th largest of the n deciding
   logits of that pass, k = the capacity of n: at most k lie strictly above. So for every path that decides by a logit;
   others keep theirs. Sessions of the model decide by the new ones at once. On failure the thresholds are as before. */
MODDEF mod_result mod_model_calibrate(mod_model *model, mod_tape *tape, const mod_batch *batch, mod_error *err);

/* FLOPs of one forward pass by formula: 2 per multiply-add of projections, attention (n (n+1) / 2 pairs), router,
   predictor, head. Equals what the ops count. */
typedef struct mod_flops {
   double blocks, head, total;
} mod_flops;
/* lengths: [n_seqs] tokens of each sequence. blocks: [n_layers] what happened, as in mod_forward, or NULL: as many as
   there are slots, in top-k mode (where keys are selected apart: with as many pairs as if both were spread evenly). */
MODDEF mod_result mod_config_flops(const mod_config *cfg, int n_seqs, const int *lengths,
                                   const mod_block_stats *blocks, mod_flops *out, mod_error *err);
/* The model of cfg's kind and width whose forward pass over `context` tokens costs `flops` (mod_flops.total, top-k
   mode): *out is *cfg with the depth that comes nearest, as the paper advises, and then with a d_ff, a multiple of 16
   away, for the rest. n_layers of cfg is not read; blocks must be NULL. MOD_RESULT_ARG if nothing comes near. */
MODDEF mod_result mod_config_match(const mod_config *cfg, double flops, mod_config *out, mod_error *err);

/* =================================================================================================================
   >>api-train  Training: AdamW, clip groups, warm-up and cosine, gradient accumulation
   ================================================================================================================= */

struct mod_train_desc {
   int n_seqs;          /* 0 = 8: sequences of a (micro-)batch */
   int length;          /* 0 = context: tokens of a sequence */
   int steps;           /* 0 = 1000: length of the schedule */
   int warmup;          /* steps over which lr rises linearly; 0 = off */
   double lr;           /* 0 = 1e-3 */
   double lr_min;       /* 0 = lr / 10: where the cosine ends */
   double beta1, beta2; /* 0 = 0.9, 0.95 */
   double eps;          /* 0 = 1e-8 */
   double weight_decay; /* 0 = off; decoupled; on matmul weights and the embedding */
   double clip_norm;    /* 0 = off; for the language model and for the predictors, each by its own norm */
   double dropout;      /* 0 = off; probability, below 1 */
   int capacity_warmup; /* 0 = off: steps s over which no block takes less than 1 - s / capacity_warmup of the tokens */
   double threshold_decay; /* 0 = off; below 1: each step moves the thresholds, theta = decay theta + (1 - decay) m; m:
                              the mean over sequences of the midpoint between the k-th and the next deciding logit.
                              Where theta is 0, not set yet, it becomes m */
   int n_threads;       /* 0 = 1 */
   mod_simd simd;       /* 0 = the best there is */
   mod_jobs jobs;
   uint64_t seed; /* of random draws in training */
};

/* AdamW for a network of your own: step `step`, counted from 0, on n parameters with their gradient and moments m and
   v, which start as 0. Of `how`, resolved, it takes the learning rate and its schedule, betas, eps, weight_decay,
   clip_norm, threads and simd. *norm (may be NULL): of the gradient, before clipping. If that is not finite it is
   MOD_RESULT_NUMERIC and nothing changes. */
MODDEF mod_result mod_adamw(const mod_train_desc *how, int64_t step, mod_real *params, const mod_real *grads,
                            mod_real *m, mod_real *v, size_t n, double *norm, mod_error *err);

typedef struct mod_trainer mod_trainer;

typedef struct mod_step_info {
   int64_t step;   /* steps done, this one included */
   double loss;    /* cross-entropy alone, nats per target */
   double router_bce, predictor_bce, balance_loss, z_loss;
   double grad_norm, predictor_grad_norm; /* before clipping */
   double lr;
} mod_step_info;

/* The desc with every default filled in. cfg NULL: length stays 0 if it is 0. Does not check. */
MODDEF mod_train_desc mod_train_resolve(const mod_train_desc *how, const mod_config *cfg);
/* Learning rate of step `step` (from 0). `how` must be resolved. 0 for NULL. */
MODDEF double mod_train_lr(const mod_train_desc *how, int64_t step);
/* A trainer in your memory (plan.trainer bytes) for a model, which must outlive it. NULL on failure. */
MODDEF mod_trainer *mod_trainer_init(mod_model *model, const mod_train_desc *how, void *memory, size_t size,
                                     mod_error *err);
MODDEF mod_trainer *mod_trainer_create(mod_model *model, const mod_train_desc *how, const mod_allocator *allocator,
                                       mod_error *err);
MODDEF void mod_trainer_destroy(mod_trainer *trainer);
/* One optimiser step on one batch (batch->mode must be MOD_MODE_TOPK; seed, step, first_id, dropout and least_capacity
   are the trainer's: set its desc). A loss or gradient norm that is not finite is MOD_RESULT_NUMERIC: weights, moments
   and step count are as before, gradients are zero. */
MODDEF mod_result mod_train_step(mod_trainer *trainer, const mod_batch *batch, mod_step_info *info, mod_error *err);
/* The same in parts: adds a micro-batch's gradient (give it the whole step's n_targets and n_tokens), then updates. */
MODDEF mod_result mod_train_accumulate(mod_trainer *trainer, const mod_batch *batch, mod_error *err);
MODDEF mod_result mod_train_update(mod_trainer *trainer, mod_step_info *info, mod_error *err);
/* Steps done, those before a load included. 0 for NULL. */
MODDEF int64_t mod_trainer_step(const mod_trainer *trainer);
/* The last micro-batch's forward pass: valid until the next. NULL before the first, and after a failed one. */
MODDEF const mod_forward *mod_trainer_forward(const mod_trainer *trainer);
/* The flat gradient, like mod_model_params. NULL for NULL. */
MODDEF mod_real *mod_trainer_grads(mod_trainer *trainer, size_t *count);
/* Most bytes of the trainer's memory in use so far: plan.trainer after a full batch. 0 for NULL. */
MODDEF size_t mod_trainer_peak(const mod_trainer *trainer);

/* =================================================================================================================
   >>api-session  Session: causal decoding with a cache for each block
   ================================================================================================================= */

typedef struct mod_session_desc {
   int n_seqs;     /* 0 = 1: sequences; one for now */
   int length;     /* 0 = context: most tokens */
   int chunk;      /* 0 = min(32, length): tokens that go through the model at once while feeding many */
   int n_threads;  /* 0 = 1 */
   mod_simd simd;  /* 0 = the best there is */
   mod_jobs jobs;
   uint64_t seed;  /* of stochastic selection */
   mod_probe probe; /* NULL, or called during feeding; at MOD_SITE_LOGITS x has one row, for the last of the rows. It
                       must not call the session's functions */
   void *probe_user;
} mod_session_desc;

typedef struct mod_session mod_session;

/* Bytes for mod_session_init; *cache (may be NULL): how many of them hold keys, values and positions. There is room for
   `length` tokens in every block: causally, a routed block may take them all. */
MODDEF mod_result mod_session_plan(const mod_config *cfg, const mod_session_desc *desc, size_t *bytes, size_t *cache,
                                   mod_error *err);
/* A session in your memory, for a model that it only reads, and that must stay: any number of sessions may share one.
   desc NULL: defaults. */
MODDEF mod_session *mod_session_init(const mod_model *model, const mod_session_desc *desc, void *memory, size_t size,
                                     mod_error *err);
MODDEF mod_session *mod_session_create(const mod_model *model, const mod_session_desc *desc,
                                       const mod_allocator *allocator, mod_error *err);
MODDEF void mod_session_destroy(mod_session *session);
/* Forgets all tokens. NULL: nothing to do. */
MODDEF void mod_session_reset(mod_session *session);
/* Appends n >= 1 tokens and runs them through the model. The same bits as mod_model_forward over the whole sequence in
   causal mode (with the session's seed, step and first_id 0), however the tokens are split among calls. On failure the
   session is as before. MOD_RESULT_FULL: more tokens than `length`; to write on, reset, and feed what should be
   remembered, say the last half. */
MODDEF mod_result mod_session_feed(mod_session *session, const int *tokens, int n, mod_error *err);
/* The same for a model with n_inputs: rows [n, n_inputs]. */
MODDEF mod_result mod_session_feed_rows(mod_session *session, const mod_real *rows, int n, mod_error *err);
/* [vocab_size], or [n_outputs]: logits after the last token. NULL before the first. */
MODDEF const mod_real *mod_session_logits(const mod_session *session);
/* Tokens so far; and of how many of them block `block` remembers keys and values: those that it took, or that its
   kv_select took. -1 for NULL or no such block. */
MODDEF int mod_session_length(const mod_session *session);
MODDEF int mod_session_cached(const mod_session *session, int block);
/* Most bytes of the session's memory in use so far: as planned after a full chunk. 0 for NULL. */
MODDEF size_t mod_session_peak(const mod_session *session);

/* =================================================================================================================
   >>api-sample  Sampling
   ================================================================================================================= */

typedef struct mod_sample_desc {
   int top_k;          /* 0 = off: only the k most likely tokens */
   double top_p;       /* 0 = off: the fewest most likely tokens whose probabilities reach p, after top-k */
   double temperature; /* 0 = greedy: the most likely token (the lowest id among equals) */
   uint64_t seed;
} mod_sample_desc;

/* A token id drawn from logits[0 .. n-1], or -1 on failure. The draw is a function of (seed, index): count index up
   with every token. No memory, O(n). NaN, or a largest logit that is infinite: MOD_RESULT_NUMERIC. Ties go to
   the lower id. desc NULL: greedy. */
MODDEF int mod_sample(const mod_real *logits, int n, const mod_sample_desc *desc, uint64_t index, mod_error *err);

/* =================================================================================================================
   >>api-file  Files: safetensors, which any tool can read; numbers exact to the bit
   ================================================================================================================= */

/* Bytes by position. read returns how many of `size` bytes from `offset` on it has put into `to`; fewer is an error. */
typedef struct mod_reader {
   uint64_t size; /* of the whole file */
   size_t (*read)(uint64_t offset, void *to, size_t size, void *user);
   void *user;
} mod_reader;

/* Bytes in order. write returns how many it has taken; fewer is an error. */
typedef struct mod_writer {
   size_t (*write)(const void *from, size_t size, void *user);
   void *user;
} mod_writer;

enum { MOD_ENTRY_MAX_DIM = 8 };

/* A tensor in a safetensors file. */
typedef struct mod_entry {
   const char *name; /* UTF-8 */
   const char *dtype; /* "F32", "BF16", "I64", ... */
   int n_dim;
   uint64_t dim[MOD_ENTRY_MAX_DIM];
   uint64_t begin, end; /* bytes from the beginning of the file */
} mod_entry;

typedef struct mod_file mod_file;

/* What goes into a file beside the parameters, the config and the thresholds. NULL: nothing. */
typedef struct mod_save_desc {
   int n_meta;
   const char *const *meta;    /* [2 n_meta]: your keys, none of which begins with "mod.", and values, in turn; UTF-8 */
   const mod_trainer *trainer; /* NULL, or: moments, step and schedule, from which training goes on to the bit */
   uint64_t position;          /* with a trainer: where you are in your data */
} mod_save_desc;

/* Writes a model. Between steps only: micro-batches under way are MOD_RESULT_STATE. Nothing is allocated. */
MODDEF mod_result mod_save(const mod_model *model, const mod_save_desc *desc, const mod_writer *writer, mod_error *err);

/* Opens a safetensors file in your memory (as planned; it grows with the file's header, not with its data). Reads and
   checks the whole header: for untrusted files. The reader must stay; close with mod_file_close. Errors: MOD_RESULT_IO,
   MOD_RESULT_FORMAT with the byte where the header is wrong. */
MODDEF mod_result mod_file_plan(const mod_reader *reader, size_t *bytes, mod_error *err);
MODDEF mod_file *mod_file_init(const mod_reader *reader, void *memory, size_t size, mod_error *err);
MODDEF mod_file *mod_file_create(const mod_reader *reader, const mod_allocator *allocator, mod_error *err);
MODDEF void mod_file_close(mod_file *file);
/* Its tensors, in the order of their names; and a value of its metadata, or NULL. */
MODDEF const mod_entry *mod_file_tensors(const mod_file *file, int *count);
MODDEF const char *mod_file_meta(const mod_file *file, const char *key);
/* The numbers of tensor `index`, which must be F32 or F64 and `count` of them. */
MODDEF mod_result mod_file_read(const mod_file *file, int index, mod_real *out, size_t count, mod_error *err);

/* The config in a file that mod_save wrote (cfg->blocks lives as long as the file is open), checked. */
MODDEF mod_result mod_file_config(const mod_file *file, mod_config *cfg, mod_error *err);
/* The schedule and seed, and your position, of a file that was saved with a trainer; of another it is MOD_RESULT_STATE.
   n_threads, simd and jobs are 0. n_seqs and length are whatever the file says: plan before you create. */
MODDEF mod_result mod_file_train_desc(const mod_file *file, mod_train_desc *how, uint64_t *position, mod_error *err);
/* Parameters and thresholds into a model of the same config, and, with a trainer of this model, its state. A file that
   does not fit is MOD_RESULT_FORMAT and changes nothing. Every byte is read once before the first is stored; a read
   that fails only the second time leaves some tensors changed. The trainer keeps its own desc: make it from
   mod_file_train_desc to go on as before. */
MODDEF mod_result mod_file_load(const mod_file *file, mod_model *model, mod_trainer *trainer, mod_error *err);

#ifndef MOD_NO_STDIO
/* mod_save into path + ".tmp", then a rename over path: a failure leaves the old file as it was. (On Windows, where
   rename does not replace, the old file is removed just before. Nothing is forced to the disk: to survive a power cut,
   or a crash on Windows, hand mod_save the writer of examples/common/durable.h.) */
MODDEF mod_result mod_save_file(const mod_model *model, const mod_save_desc *desc, const char *path, mod_error *err);
/* mod_file_create on a file; mod_file_close closes it. */
MODDEF mod_file *mod_file_open(const char *path, const mod_allocator *allocator, mod_error *err);
#endif

#ifdef __cplusplus
}
#endif

#endif /* MOD_H_MIXTURE_OF_DEPTHS */

/* #################################################################################################################
   IMPLEMENTATION
   ################################################################################################################# */

#if defined(MOD_IMPLEMENTATION) && !defined(MOD_H_IMPLEMENTED)
#define MOD_H_IMPLEMENTED

/* =================================================================================================================
   >>config  Compiler: what is refused, what is switched off, what differs
   ================================================================================================================= */

#if defined(__FAST_MATH__) || defined(_M_FP_FAST) || defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__) || \
   defined(__NO_SIGNED_ZEROS__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ > 0)
#define MOD__FAST_MATH
#endif
#if defined(MOD__FAST_MATH) && !defined(MOD_ALLOW_FAST_MATH)
#error "mod.h: build without fast-math (it changes results and removes NaN checks) or define MOD_ALLOW_FAST_MATH"
#endif

#include <float.h>
#include <limits.h>
#include <math.h>
#include <string.h>
#if INT_MAX < 2147483647 || DBL_MANT_DIG != 53
#error "mod.h: an int of at least 32 bits and a double of 64 are needed"
#endif
#if !defined(MOD_NO_MALLOC) && !defined(MOD_MALLOC)
#include <stdlib.h>
#define MOD_MALLOC malloc
#define MOD_FREE free
#endif
#ifndef MOD_NO_STDIO
#include <stdio.h>
#endif
#ifndef MOD_ASSERT
#define MOD_ASSERT(condition) ((void)0)
#endif

/* No fused multiply-add behind our back: it rounds once where plain arithmetic rounds twice. And gcc's -O2 is told to
   turn plain loops into vectors, as its -O3 and clang's -O2 do: none of this changes a bit. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC push_options /* popped at the end */
#pragma GCC optimize("fp-contract=off", "no-math-errno", "no-trapping-math")
#pragma GCC optimize("tree-vectorize", "vect-cost-model=dynamic")
#elif defined(_MSC_VER)
#pragma fp_contract(off)
#endif

#if defined(_OPENMP) && !defined(MOD_NO_OPENMP)
#define MOD__OPENMP
#define MOD__INFO_THREADS "OpenMP"
#else
#define MOD__INFO_THREADS "no OpenMP"
#endif

#if defined(__GNUC__) || defined(_MSC_VER)
#define MOD__RESTRICT __restrict
#else
#define MOD__RESTRICT
#endif

#define MOD__FN MOD__UNUSED static

/* Vector code for the processors of this build, chosen at run time (>>kernels); by gcc and clang, but not where clang
   stands in for MSVC. From gcc for Windows nothing wider than SSE2: it keeps wide vectors at places of the stack that
   are not aligned. */
#if !defined(MOD_NO_SIMD) && !defined(MOD_USE_DOUBLE) && !defined(_MSC_VER) && !defined(__INTEL_COMPILER) && \
   !defined(__NVCOMPILER) && (defined(__clang__) || (defined(__GNUC__) && __GNUC__ >= 8))
#if defined(__x86_64__)
#ifdef MOD_FAST_FMA
#include <immintrin.h>
#else
#include <xmmintrin.h> /* the other one alone takes half a second to compile */
#endif
#define MOD__SSE2
#define MOD__SQRT4 _mm_sqrt_ps /* of four floats */
#if defined(__clang__) || !(defined(_WIN32) || defined(__CYGWIN__))
#define MOD__AVX
#endif
#elif defined(__aarch64__)
#include <arm_neon.h>
#define MOD__NEON
#define MOD__SQRT4 vsqrtq_f32
#elif defined(__wasm_simd128__)
#include <wasm_simd128.h>
#define MOD__WASM128
#define MOD__SQRT4 wasm_f32x4_sqrt
#endif
#endif
#ifdef MOD__SQRT4
#define MOD__INLINE static inline __attribute__((__always_inline__)) /* so that a loop over it becomes vectors */
#else
#define MOD__INLINE MOD__FN
#endif

enum {
   MOD__ALIGN = 16,           /* pieces of an arena start at multiples of this from its base */
   MOD__LINE = 64,            /* bytes of a line of the cache */
   MOD__MAX_ROWS = 1 << 24,   /* rows of a batch */
   MOD__MAX_LAYERS = 1024,
   MOD__MAX_EXPERTS = 64,
   MOD__STUB_BYTES = 20 << 10 /* tensor descriptions of one block, for a measuring run on the stack */
};

/* =================================================================================================================
   >>size  Checked arithmetic, errors
   ================================================================================================================= */

/* *out = a * b, *out = a + b: 1 if it fits, else 0. */
MOD__FN int mod__mul(size_t *out, size_t a, size_t b)
{
   if (b && a > (size_t)-1 / b) return 0;
   *out = a * b;
   return 1;
}

MOD__FN int mod__add_size(size_t *out, size_t a, size_t b)
{
   if (a > (size_t)-1 - b) return 0;
   *out = a + b;
   return 1;
}

MOD__FN int mod__min(int a, int b) { return a < b ? a : b; }
MOD__FN int mod__max(int a, int b) { return a > b ? a : b; }

MOD__FN mod_result mod__error(mod_error *err, mod_result code, const char *message, int block, int64_t where)
{
   const mod_error e = {code, message, block, where};
   if (err) *err = e;
   return code;
}

MOD__FN mod_result mod__ok(mod_error *err) { return mod__error(err, MOD_RESULT_OK, "no error", -1, -1); }

MOD__FN mod_result mod__bad(mod_error *err, const char *message)
{
   return mod__error(err, MOD_RESULT_ARG, message, -1, -1);
}

MOD__FN mod_result mod__too_small(mod_error *err)
{
   return mod__error(err, MOD_RESULT_MEMORY, "the memory given is too small", -1, -1);
}

/* The bits of a double, and back. */
MOD__FN uint64_t mod__bits64(double x)
{
   uint64_t bits;
   memcpy(&bits, &x, 8);
   return bits;
}

MOD__FN double mod__from_bits64(uint64_t bits)
{
   double x;
   memcpy(&x, &bits, 8);
   return x;
}

/* By its bits, because a compiler told that there is no NaN removes x != x. */
MOD__FN int mod__finite(double x) { return (mod__bits64(x) >> 52 & 2047) != 2047; }
MOD__FN int mod__nan(double x) { return (mod__bits64(x) & ~((uint64_t)1 << 63)) > (uint64_t)2047 << 52; }

/* Above 0 and finite, as a mod_real too. */
MOD__FN int mod__positive(double x) { return x > 0 && x <= (double)FLT_MAX && (mod_real)x > 0; }

MODDEF int mod_version(void) { return MOD_H_VERSION; }

MODDEF const char *mod_result_name(mod_result result)
{
   switch (result) {
#define MOD__RESULT_CASE(name, value) \
   case MOD_RESULT_##name: return #name;
      MOD__RESULTS(MOD__RESULT_CASE)
#undef MOD__RESULT_CASE
   default: return "UNKNOWN";
   }
}

/* =================================================================================================================
   >>arena  A stack of bytes
   ================================================================================================================= */

MODDEF mod_result mod_arena_init(mod_arena *arena, void *memory, size_t size, mod_error *err)
{
   if (!arena) return mod__bad(err, "arena is NULL");
   if ((uintptr_t)memory & 7) return mod__error(err, MOD_RESULT_ALIGN, "memory is not aligned to 8 bytes", -1, -1);
   arena->base = (unsigned char *)memory;
   arena->size = size;
   arena->used = arena->peak = 0;
   return mod__ok(err);
}

MODDEF mod_result mod_arena_push(mod_arena *arena, size_t count, size_t size, void **out, mod_error *err)
{
   size_t bytes, end;
   if (!arena || !out) return mod__bad(err, "arena or out is NULL");
   if (!mod__mul(&bytes, count, size) || !mod__add_size(&bytes, bytes, MOD__ALIGN - 1) ||
       !mod__add_size(&end, arena->used, bytes &= ~(size_t)(MOD__ALIGN - 1)) || end > arena->size)
      return mod__too_small(err);
   *out = arena->base ? arena->base + arena->used : NULL;
   arena->used = end;
   if (arena->peak < end) arena->peak = end;
   return mod__ok(err);
}

MODDEF mod_result mod_arena_rewind(mod_arena *arena, size_t mark, mod_error *err)
{
   if (!arena) return mod__bad(err, "arena is NULL");
   if (mark > arena->used) return mod__bad(err, "the mark lies beyond what is in use");
   arena->used = mark;
   return mod__ok(err);
}

MOD__FN mod_arena mod__counter(void)
{
   const mod_arena a = {NULL, (size_t)-1, 0, 0};
   return a;
}

/* For a walk over many pieces: the next one. NULL while counting, and where it does not fit, which *fits keeps. */
MOD__FN void *mod__push(mod_arena *arena, size_t count, size_t size, int *fits)
{
   void *piece = NULL;
   *fits = *fits && mod_arena_push(arena, count, size, &piece, NULL) == MOD_RESULT_OK;
   return piece;
}

/* The allocator to use: the caller's, or malloc. NULL if there is none. */
#ifndef MOD_NO_MALLOC
MOD__FN void *mod__malloc(size_t size, void *user)
{
   (void)user;
   return MOD_MALLOC(size);
}
MOD__FN void mod__free(void *memory, void *user)
{
   (void)user;
   MOD_FREE(memory);
}
#endif

MOD__FN void *mod__allocate(mod_allocator *chosen, const mod_allocator *allocator, size_t size, mod_error *err)
{
   void *memory;
   if (allocator) {
      *chosen = *allocator;
   } else {
      memset(chosen, 0, sizeof *chosen);
#ifndef MOD_NO_MALLOC
      chosen->alloc = mod__malloc;
      chosen->free = mod__free;
#endif
   }
   if (!chosen->alloc || !chosen->free) {
      mod__bad(err, "an allocator with alloc and free is needed");
      return NULL;
   }
   memory = chosen->alloc(size, chosen->user);
   if (!memory) mod__error(err, MOD_RESULT_MEMORY, "the allocator gave no memory", -1, -1);
   return memory;
}

/* How functions that create end, and those that destroy. Whatever is made begins with its allocator; that is zero where
   the memory is the caller's. */
MOD__FN void *mod__created(void *made, void *memory, const mod_allocator *chosen)
{
   if (made) *(mod_allocator *)made = *chosen;
   else chosen->free(memory, chosen->user);
   return made;
}

MOD__FN void mod__destroy(void *made)
{
   const mod_allocator *chosen = (const mod_allocator *)made;
   if (made && chosen->free) chosen->free(made, chosen->user);
}

/* =================================================================================================================
   >>math  exp, log, tanh, ... that give the same bits everywhere

   Arguments are reduced to a small interval, where a polynomial is exact enough: Taylor series in double, minimax
   polynomials of our own in float. ln 2 and pi / 2 are cut into parts where everybody cuts them (fdlibm, Cephes).
   ================================================================================================================= */

/* 2^n as a double, n in [-1022, 1023]. */
MOD__FN double mod__exp2i64(int n) { return mod__from_bits64((uint64_t)(n + 1023) << 52); }

/* x = n ln 2 + r, |r| <= ln 2 / 2; e^r by its series; times 2^n. */
MOD__FN double mod__exp64(double x)
{
   double n, r, sum = 1;
   int i;
   if (mod__nan(x)) return x;
   if (x > 709) x = 709;
   if (x < -708) x = -708;
   n = floor(x * 1.4426950408889634 + 0.5);
   r = (x - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10; /* ln 2 in two parts */
   for (i = 14; i >= 1; --i) sum = 1 + sum * r / i;
   return sum * mod__exp2i64((int)n);
}

/* x = 2^n m, m in [sqrt(1/2), sqrt(2)); log m = 2 atanh s, s = (m - 1) / (m + 1). Normal positive x only. */
MOD__FN double mod__log64(double x)
{
   const uint64_t bits = mod__bits64(x);
   double m = mod__from_bits64((bits & (((uint64_t)1 << 52) - 1)) | (uint64_t)1023 << 52), s, z, sum = 0;
   int n = (int)(bits >> 52) - 1023, i;
   if (m > 1.4142135623730951) {
      m *= 0.5;
      ++n;
   }
   s = (m - 1) / (m + 1);
   z = s * s;
   for (i = 23; i >= 3; i -= 2) sum = (sum + 1.0 / i) * z;
   return n * 0.693147180369123816490 + (n * 1.90821492927058770002e-10 + 2 * (s + s * sum));
}

/* x = n pi/2 + r, |r| <= pi/4 (pi/2 in three parts, the first two of 33 bits: exact for |x| <= 2^20); series of r. */
MOD__FN void mod__sincos64(double x, double *sine, double *cosine)
{
   double n = floor(x * 0.63661977236758134 + 0.5);
   double r = ((x - n * 1.57079632673412561417e+00) - n * 6.07710050630396597660e-11) - n * 2.02226624879595063154e-21;
   double z = r * r, s = 1, c = 1, quarter = n - 4 * floor(n * 0.25);
   int i;
   for (i = 18; i >= 2; i -= 2) {
      s = 1 - s * z / (i * (i + 1));
      c = 1 - c * z / (i * (i - 1));
   }
   s *= r;
   *sine = quarter == 0 ? s : quarter == 1 ? c : quarter == 2 ? -s : -c;
   *cosine = quarter == 0 ? c : quarter == 1 ? -s : quarter == 2 ? -c : s;
}

MOD__INLINE float mod__from_bits(uint32_t bits)
{
   float x;
   memcpy(&x, &bits, 4);
   return x;
}

/* libm only for what IEEE 754 rounds exactly; and for everything in a double build, which promises no bits. */
#ifdef MOD_USE_DOUBLE

MOD__FN mod_real mod__sqrt(mod_real x) { return sqrt(x); }
MOD__FN mod_real mod__fabs(mod_real x) { return fabs(x); }
MOD__FN mod_real mod__exp(mod_real x) { return exp(x); }
MOD__FN mod_real mod__exp_low(mod_real x) { return exp(x); }
MOD__FN mod_real mod__log(mod_real x) { return log(x); }
MOD__FN mod_real mod__tanh(mod_real x) { return tanh(x); }

#else

MOD__INLINE float mod__sqrt(float x) { return sqrtf(x); }
MOD__INLINE float mod__fabs(float x) { return fabsf(x); }

MOD__INLINE uint32_t mod__bits(float x)
{
   uint32_t bits;
   memcpy(&bits, &x, 4);
   return bits;
}

/* These have no branches, so that the compiler can compute several at once. NaN goes through: a comparison with it is
   false. As mod__exp64; 2^n in two factors, so that results may be denormal; adding 1.5 * 2^23 rounds to an integer.
   mod__exp_low is for x <= 89, as softmax and sigmoid have it. */
MOD__INLINE float mod__exp_low(float x)
{
   float t, n, r, p;
   uint32_t i, half;
   x = x < -104.0f ? -104.0f : x;
   t = x * 1.44269504f + 12582912.0f;
   n = t - 12582912.0f;
   r = (x - n * 0.693359375f) + n * 2.12194440e-4f; /* ln 2 in two parts */
   p = 1.39506033e-3f;
   p = p * r + 8.36895313e-3f;
   p = p * r + 4.16662060e-2f;
   p = p * r + 1.66665182e-1f;
   p = p * r + 0.5f;
   p = (p * (r * r) + r) + 1.0f;
   i = mod__bits(t) - (0x4b400000u - 254u); /* n, twice biased */
   half = i >> 1;
   return p * mod__from_bits(half << 23) * mod__from_bits((i - half) << 23);
}

MOD__INLINE float mod__exp(float x) { return mod__exp_low(x > 89.0f ? 89.0f : x); }

/* As mod__log64: log(1 + f) = f - (f^2/2 - s (f^2/2 + R(s^2))), which loses nothing near 1. */
MOD__INLINE float mod__log(float x)
{
   float lift = x < FLT_MIN ? 8388608.0f : 1.0f, f, s, z, h, n, y;
   uint32_t bits = mod__bits(x * lift) - 0x3f3504f3u; /* sqrt(1/2) */
   int e = (int)((bits + 0x3f800000u) >> 23) - (x < FLT_MIN ? 150 : 127);
   f = mod__from_bits((bits & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
   s = f / (2.0f + f);
   z = s * s;
   h = 0.5f * f * f;
   n = (float)e;
   z = z * (0.666667819f + z * (0.399770647f + z * 0.298856169f));
   y = n * 0.693359375f - ((h - (s * (h + z) - n * 2.12194440e-4f)) - f);
   y = x <= FLT_MAX ? y : x; /* infinite, or NaN */
   y = x == 0.0f ? -mod__from_bits(0x7f800000u) : y;
   return x < 0.0f ? mod__from_bits(0x7fc00000u) : y;
}

/* |x| < 0.625: a polynomial; beyond: 1 - 2 / (exp(2 |x|) + 1). */
MOD__INLINE float mod__tanh(float x)
{
   float a = mod__fabs(x), z = x * x, y = -5.71704563e-3f, outer;
   y = y * z + 2.06505880e-2f;
   y = y * z - 5.37434965e-2f;
   y = y * z + 1.33314908e-1f;
   y = y * z - 3.33332837e-1f;
   y = x + x * z * y;
   outer = 1.0f - 2.0f / (mod__exp(2.0f * a) + 1.0f);
   outer = x < 0.0f ? -outer : outer;
   return a < 0.625f ? y : outer;
}

#endif /* MOD_USE_DOUBLE */

/* 1 / (1 + exp(-x)) for x >= 0, exp(x) / (1 + exp(x)) below */
MOD__INLINE mod_real mod__sigmoid(mod_real x)
{
   mod_real e = mod__exp_low(-mod__fabs(x)), top = x < 0 ? e : 1;
   return top / (1 + e);
}

/* 0.5 x (1 + tanh u) = x sigmoid(2 u) = x / (1 + exp(-2 u)), u = sqrt(2/pi) (x + 0.044715 x^3). 0 below -20. */
static const mod_real mod__sqrt_2_pi = (mod_real)0.7978845608028654, mod__gelu_cube = (mod_real)0.044715;
MOD__INLINE mod_real mod__gelu(mod_real x)
{
   mod_real c = x < -20 ? -20 : x;
   return c / (1 + mod__exp(-2 * (mod__sqrt_2_pi * (c + mod__gelu_cube * (c * c * c)))));
}

/* s + x s (1 - s) 2 u', s = sigmoid(2 u) */
MOD__INLINE mod_real mod__gelu_slope(mod_real x)
{
   mod_real c = x < -20 ? -20 : x > 20 ? 20 : x;
   mod_real s = mod__sigmoid(2 * (mod__sqrt_2_pi * (c + mod__gelu_cube * (c * c * c))));
   return s + c * (s * (1 - s)) * (2 * (mod__sqrt_2_pi * (1 + 3 * mod__gelu_cube * (c * c))));
}

MOD__INLINE mod_real mod__silu(mod_real x)
{
   mod_real c = x < -200 ? -200 : x; /* -inf would give -inf * 0 */
   return c * mod__sigmoid(c);
}

MOD__INLINE mod_real mod__silu_slope(mod_real x)
{
   mod_real c = x < -200 ? -200 : x > 200 ? 200 : x, s = mod__sigmoid(c);
   return s + c * (s * (1 - s));
}

/* =================================================================================================================
   >>rng  Random numbers: a hash of (seed, stream, index)
   ================================================================================================================= */

/* A bijection of 64 bits in which every input bit moves about half of the output bits (SplitMix64's finaliser,
   Steele, Lea and Flood 2014). */
MOD__FN uint64_t mod__mix(uint64_t x)
{
   x += UINT64_C(0x9e3779b97f4a7c15);
   x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
   x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
   return x ^ (x >> 31);
}

MODDEF uint64_t mod_random_stream(const char *name) /* FNV-1a */
{
   uint64_t h = UINT64_C(14695981039346656037);
   for (; name && *name; ++name) h = (h ^ (unsigned char)*name) * UINT64_C(1099511628211);
   return h;
}

MODDEF uint64_t mod_random_substream(uint64_t stream, uint64_t number) { return mod__mix(stream ^ mod__mix(number)); }

MODDEF uint64_t mod_random_bits(uint64_t seed, uint64_t stream, uint64_t index)
{
   return mod__mix(mod__mix(mod__mix(seed) ^ stream) ^ index);
}

MODDEF double mod_random_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
   return (double)(mod_random_bits(seed, stream, index) >> 11) * (1.0 / 9007199254740992.0);
}

MODDEF double mod_random_normal(uint64_t seed, uint64_t stream, uint64_t index) /* Box and Muller */
{
   uint64_t bits = mod_random_bits(seed, stream, index);
   double u = ((double)(bits >> 32) + 0.5) * (1.0 / 4294967296.0);
   double v = (double)(bits & UINT64_C(0xffffffff)) * (1.0 / 4294967296.0), sine, cosine;
   mod__sincos64(6.283185307179586 * v, &sine, &cosine);
   return sqrt(-2.0 * mod__log64(u)) * cosine;
}

/* =================================================================================================================
   >>kernels  Sums in a fixed order, products, element by element: plain; the same in vectors; the choice; threads

   The order of every sum is part of the contract (>>concepts, Same bits): a faster kernel must give these very bits.
   ================================================================================================================= */

/* --- plain --- */

/* Sums along a row: sixteen partial sums, s[i] of the elements i, i + 16, ...; then s[i] += s[i + 8], 4, 2, 1. */
MOD__INLINE mod_real mod__fold16(mod_real *s)
{
   int half, i;
   for (half = 8; half; half /= 2)
      for (i = 0; i < half; ++i) s[i] += s[i + half];
   return s[0];
}

MOD__FN mod_real mod__sum(const mod_real *x, size_t n)
{
   mod_real s[16] = {0};
   size_t i;
   for (i = 0; i < n; ++i) s[i & 15] += x[i];
   return mod__fold16(s);
}

MOD__FN mod_real mod__dot(const mod_real *x, const mod_real *y, size_t n)
{
   mod_real s[16] = {0};
   size_t i;
   for (i = 0; i < n; ++i) s[i & 15] += x[i] * y[i];
   return mod__fold16(s);
}

MOD__FN mod_real mod__largest(const mod_real *x, size_t n) /* n >= 1 */
{
   mod_real m = x[0];
   size_t i;
   for (i = 1; i < n; ++i) m = m > x[i] ? m : x[i];
   return m;
}

/* The sum of exp((x[i] - m) scale); these go to e, if it is not NULL. e may be x. */
MOD__FN mod_real mod__exp_row(mod_real *e, const mod_real *x, size_t n, mod_real m, mod_real scale)
{
   mod_real s[16] = {0};
   size_t i;
   for (i = 0; i < n; ++i) {
      mod_real y = mod__exp_low((x[i] - m) * scale);
      if (e) e[i] = y;
      s[i & 15] += y;
   }
   return mod__fold16(s);
}

/* y += a x */
MOD__FN void mod__axpy(mod_real *MOD__RESTRICT y, mod_real a, const mod_real *MOD__RESTRICT x, size_t n)
{
   size_t i;
   for (i = 0; i < n; ++i) y[i] += a * x[i];
}

/* C[i][j] = sum over q ascending of A[i][q] B[q][j], from 0 or from the value already in C: one chain per element. A is
   addressed by two strides. B is in panels of the level's `panel` columns, all of which can be read: column j of row q
   is b[j / panel * b_panel + q * b_row + j % panel]. */
typedef struct mod__product {
   mod_real *c;
   const mod_real *a, *b;
   size_t c_row, a_row, a_col, b_row, b_panel;
   int m, n, k, accumulate;
} mod__product;

enum {
   MOD__PANEL = 16,  /* columns of a plain panel */
   MOD__WIDEST = 32, /* and of the widest of any level */
   MOD__BLOCK = 384, /* steps of a chain before the next tile, so that a panel stays in the cache; rows, columns of B */
   MOD__A_ROWS = 96  /* rows of A at a time */
};

MOD__FN void mod__multiply(const mod__product *p)
{
   int i, j, q;
   for (i = 0; i < p->m; ++i)
      for (j = 0; j < p->n; j += MOD__PANEL) {
         const mod_real *a = p->a + (size_t)i * p->a_row, *b = p->b + (size_t)(j / MOD__PANEL) * p->b_panel;
         mod_real *c = p->c + (size_t)i * p->c_row + j;
         size_t width = (size_t)mod__min(p->n - j, MOD__PANEL);
         if (!p->accumulate) memset(c, 0, width * sizeof *c);
         for (q = 0; q < p->k; ++q, a += p->a_col, b += p->b_row) mod__axpy(c, *a, b, width);
      }
}

/* AdamW (Loshchilov and Hutter 2019) on one tensor: m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;
   p -= lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps) + lr decay p */
typedef struct mod__adam {
   mod_real *p, *m, *v;
   const mod_real *g;
   mod_real clip, b1, b2, one_b1, one_b2, step, v_scale, eps, decay;
   size_t n;
} mod__adam;

MOD__FN void mod__adam_step(const mod__adam *a, size_t lo, size_t hi)
{
   size_t i;
   for (i = lo; i < hi; ++i) {
      mod_real g = a->g[i] * a->clip;
      mod_real m = a->m[i] = a->b1 * a->m[i] + a->one_b1 * g;
      mod_real v = a->v[i] = a->b2 * a->v[i] + a->one_b2 * (g * g);
      a->p[i] -= a->step * m / (mod__sqrt(v * a->v_scale) + a->eps) + a->decay * a->p[i];
   }
}

/* The gates: how a router's score scales a block's delta. */
MOD__INLINE mod_real mod__gate(mod_real x, int k, mod_real a)
{
   if (k == MOD_GATE_TANH) return 1 + a * mod__tanh(x);
   return k == MOD_GATE_RAW ? x : k == MOD_GATE_SIGMOID ? mod__sigmoid(x) : 1;
}
MOD__INLINE mod_real mod__gate_slope(mod_real x, int k, mod_real a)
{
   mod_real y = k == MOD_GATE_SIGMOID ? mod__sigmoid(x) : k == MOD_GATE_TANH ? mod__tanh(x) : 0;
   return k == MOD_GATE_RAW ? 1 : k == MOD_GATE_SIGMOID ? y * (1 - y) : k == MOD_GATE_TANH ? a * (1 - y * y) : 0;
}

/* Element by element, y = f(x) and dx += dy f'(x). One line each: f of x, and f' of x and y; r and k are parameters. */
#define MOD__MAPS(OP)                                      \
   OP(exp,     mod__exp(x),        y)                      \
   OP(log,     mod__log(x),        1 / x)                  \
   OP(gelu,    mod__gelu(x),       mod__gelu_slope(x))     \
   OP(silu,    mod__silu(x),       mod__silu_slope(x))     \
   OP(relu,    x <= 0 ? 0 : x,     (mod_real)(x > 0))      \
   OP(sigmoid, mod__sigmoid(x),    y * (1 - y))            \
   OP(tanh,    mod__tanh(x),       1 - y * y)              \
   OP(scale,   r * x,              r)                      \
   OP(gate,    mod__gate(x, k, r), mod__gate_slope(x, k, r))

#define MOD__MAP_NUMBER(name, f, slope) MOD__MAP_##name,
enum { MOD__MAPS(MOD__MAP_NUMBER) MOD__N_MAPS };
#undef MOD__MAP_NUMBER

typedef struct mod__map {
   void (*forward)(mod_real *MOD__RESTRICT out, const mod_real *MOD__RESTRICT in, size_t n, mod_real r, int k);
   void (*dx)(mod_real *MOD__RESTRICT d_in, const mod_real *MOD__RESTRICT d_out, const mod_real *MOD__RESTRICT in,
              const mod_real *MOD__RESTRICT out, size_t n, mod_real r, int k);
} mod__map;

/* Both loops, as functions of these names and attributes. */
#define MOD__MAP_LOOPS(attributes, forward, dx, f, slope)                                                         \
   attributes static void forward(mod_real *MOD__RESTRICT out, const mod_real *MOD__RESTRICT in, size_t n, mod_real r, \
                                  int k)                                                                           \
   {                                                                                                               \
      size_t i;                                                                                                    \
      (void)r, (void)k;                                                                                            \
      for (i = 0; i < n; ++i) {                                                                                    \
         const mod_real x = in[i];                                                                                 \
         out[i] = (f);                                                                                             \
      }                                                                                                            \
   }                                                                                                               \
   attributes static void dx(mod_real *MOD__RESTRICT d_in, const mod_real *MOD__RESTRICT d_out,                    \
                             const mod_real *MOD__RESTRICT in, const mod_real *MOD__RESTRICT out, size_t n,        \
                             mod_real r, int k)                                                                    \
   {                                                                                                               \
      size_t i;                                                                                                    \
      (void)r, (void)k;                                                                                            \
      for (i = 0; i < n; ++i) {                                                                                    \
         const mod_real x = in[i], y = out[i];                                                                     \
         (void)x, (void)y;                                                                                         \
         d_in[i] += d_out[i] * (slope);                                                                            \
      }                                                                                                            \
   }

#define MOD__MAP_PLAIN(name, f, slope) MOD__MAP_LOOPS(MOD__UNUSED, mod__##name##_map, mod__##name##_map_dx, f, slope)
MOD__MAPS(MOD__MAP_PLAIN)
#undef MOD__MAP_PLAIN

/* --- in vectors: the last section of this file, >>simd, is read once for each width --- */

typedef struct mod__kernels {
   int panel; /* columns of a panel of mod__product */
   mod_real (*sum)(const mod_real *x, size_t n);
   mod_real (*dot)(const mod_real *x, const mod_real *y, size_t n);
   mod_real (*largest)(const mod_real *x, size_t n);
   mod_real (*exp_row)(mod_real *e, const mod_real *x, size_t n, mod_real m, mod_real scale);
   void (*multiply)(const mod__product *p);
   void (*adam_step)(const mod__adam *a, size_t lo, size_t hi);
   mod__map map[MOD__N_MAPS];
} mod__kernels;

#define MOD__MAP_ENTRY(name, f, slope) {mod__##name##_map, mod__##name##_map_dx},
static const mod__kernels mod__plain_kernels = {MOD__PANEL,    mod__sum,      mod__dot,        mod__largest,
                                                mod__exp_row,  mod__multiply, mod__adam_step,
                                                {MOD__MAPS(MOD__MAP_ENTRY)}};
#undef MOD__MAP_ENTRY

#ifdef MOD__SQRT4

#ifndef MOD_SELF
#define MOD_SELF "mod.h"
#endif
#ifdef __has_include
#if !__has_include(MOD_SELF)
#error "mod.h includes itself: define MOD_SELF as the name you gave it, or MOD_NO_SIMD"
#undef MOD__SSE2
#undef MOD__AVX
#undef MOD__NEON
#undef MOD__WASM128
#endif
#endif

/* For each: lanes of a vector; a tile of so many rows and vectors fits the registers; with MOD_FAST_FMA c + a b. */
#ifdef MOD__SSE2
#define MOD__LEVEL(name) mod__##name##_sse2
#define MOD__TARGET
#define MOD__LANES 4
#define MOD__ROWS 4
#define MOD__VECTORS 2
#include MOD_SELF
#endif

#ifdef MOD__AVX
#ifdef MOD_FAST_FMA
#define MOD__AND_FMA ",fma"
#else
#define MOD__AND_FMA
#endif

#define MOD__LEVEL(name) mod__##name##_avx2
#define MOD__TARGET __attribute__((__target__("avx2" MOD__AND_FMA)))
#define MOD__LANES 8
#define MOD__ROWS 6
#define MOD__VECTORS 2
#define MOD__FUSED(c, a, b) _mm256_fmadd_ps(_mm256_set1_ps(a), b, c)
#include MOD_SELF

#define MOD__LEVEL(name) mod__##name##_avx512
#define MOD__TARGET __attribute__((__target__("avx512f" MOD__AND_FMA)))
#define MOD__LANES 16
#define MOD__ROWS 12
#define MOD__VECTORS 2
#define MOD__FUSED(c, a, b) _mm512_fmadd_ps(_mm512_set1_ps(a), b, c)
#include MOD_SELF
#endif

#ifdef MOD__NEON
#define MOD__LEVEL(name) mod__##name##_neon
#define MOD__TARGET
#define MOD__LANES 4
#define MOD__ROWS 6
#define MOD__VECTORS 4
#define MOD__FUSED(c, a, b) vfmaq_n_f32(c, b, a)
#include MOD_SELF
#endif

#ifdef MOD__WASM128
#define MOD__LEVEL(name) mod__##name##_wasm128
#define MOD__TARGET
#define MOD__LANES 4
#define MOD__ROWS 4
#define MOD__VECTORS 2
#include MOD_SELF
#endif
#ifdef MOD__LEVEL
#error "mod.h includes itself: MOD_SELF, or without it \"mod.h\", is another file"
#endif
#endif /* vectors */

/* --- the choice --- */

MODDEF mod_simd mod_simd_best(void)
{
#if defined(MOD__AVX)
   __builtin_cpu_init();
#ifdef MOD_FAST_FMA
   if (!__builtin_cpu_supports("fma")) return MOD_SIMD_SSE2;
#endif
   if (__builtin_cpu_supports("avx512f")) return MOD_SIMD_AVX512;
   if (__builtin_cpu_supports("avx2")) return MOD_SIMD_AVX2;
#endif
#if defined(MOD__SSE2)
   return MOD_SIMD_SSE2;
#elif defined(MOD__NEON)
   return MOD_SIMD_NEON;
#elif defined(MOD__WASM128)
   return MOD_SIMD_WASM128;
#else
   return MOD_SIMD_SCALAR;
#endif
}

MODDEF const char *mod_simd_name(mod_simd level)
{
   static const char *const name[] = {"best", "scalar", "SSE2", "AVX2", "AVX-512", "NEON", "WebAssembly SIMD128"};
   return (int)level < 0 || (int)level >= (int)(sizeof name / sizeof *name) ? "unknown" : name[level];
}

/* 1 if this build has code for the level and the processor can run it. Levels of one family are in ascending order. */
MOD__FN int mod__has_level(mod_simd level)
{
   mod_simd best = mod_simd_best();
   return level == MOD_SIMD_SCALAR || level == best ||
          (level > MOD_SIMD_SCALAR && level < best && best <= MOD_SIMD_AVX512);
}

MOD__FN const mod__kernels *mod__level(mod_simd level)
{
   switch (level) {
#ifdef MOD__SSE2
   case MOD_SIMD_SSE2: return &mod__kernels_sse2;
#endif
#ifdef MOD__AVX
   case MOD_SIMD_AVX2: return &mod__kernels_avx2;
   case MOD_SIMD_AVX512: return &mod__kernels_avx512;
#endif
#ifdef MOD__NEON
   case MOD_SIMD_NEON: return &mod__kernels_neon;
#endif
#ifdef MOD__WASM128
   case MOD_SIMD_WASM128: return &mod__kernels_wasm128;
#endif
   default: return &mod__plain_kernels;
   }
}

/* --- threads --- */

/* The share of the work that a kernel is called for: items lo .. hi-1, with scratch memory of its own. Shares write to
   different places, so that any number of them gives the same bits. */
typedef struct mod__range {
   int lo, hi;
   void *scratch;
   const mod__kernels *use;
} mod__range;
typedef void (*mod__kernel)(void *arg, mod__range r);

typedef struct mod__split {
   mod__kernel kernel;
   void *arg;
   int n, parts;
   unsigned char *scratch;
   size_t stride;
   const mod__kernels *use;
} mod__split;

MOD__FN void mod__part(void *arg, int i)
{
   const mod__split *s = (const mod__split *)arg;
   mod__range r;
   r.lo = (int)((int64_t)s->n * i / s->parts);
   r.hi = (int)((int64_t)s->n * (i + 1) / s->parts);
   r.scratch = s->scratch ? s->scratch + (size_t)i * s->stride : NULL;
   r.use = s->use;
   if (r.lo < r.hi) s->kernel(s->arg, r);
}

/* Scratch for n_threads shares, each starting at a line of the cache. */
MOD__FN size_t mod__scratch_bytes(size_t per_thread, int n_threads)
{
   size_t bytes;
   if (!mod__add_size(&bytes, per_thread, MOD__LINE - 1) ||
       !mod__mul(&bytes, bytes & ~(size_t)(MOD__LINE - 1), (size_t)n_threads) ||
       !mod__add_size(&bytes, bytes, MOD__LINE))
      return (size_t)-1;
   return bytes;
}

/* Shares n items among the threads of `how`. work: steps of a plain loop per item; little work is not shared. scratch:
   `stride` bytes for each share, mod__scratch_bytes in all. */
MOD__FN void mod__parallel(const mod_tape_desc *how, mod__kernel kernel, void *arg, int n, double work,
                           unsigned char *scratch, size_t stride)
{
   double parts = work * n / 65536; /* below some twenty microseconds a thread costs more than it brings */
   mod__split split = {kernel, arg, n, mod__min(n, parts < how->n_threads ? (int)parts : how->n_threads),
                       scratch ? scratch + (-(uintptr_t)scratch & (MOD__LINE - 1)) : NULL,
                       (stride + MOD__LINE - 1) & ~(size_t)(MOD__LINE - 1), mod__level(how->simd)};
   if (split.parts <= 1) {
      split.parts = 1;
      mod__part(&split, 0);
   } else if (how->jobs.run) {
      how->jobs.run(mod__part, &split, split.parts, how->jobs.user);
   } else {
      int i;
#ifdef MOD__OPENMP
#pragma omp parallel for schedule(static) num_threads(split.parts)
#endif
      for (i = 0; i < split.parts; ++i) mod__part(&split, i);
   }
}

/* --- matrix multiply: B is copied into panels, a block of it at a time, and multiplied while it is in the cache --- */

typedef struct mod__gemm {
   mod_real *c;
   const mod_real *a, *b;
   size_t a_row, a_col, b_row, b_col;
   int m, n, k, accumulate, by_rows;
} mod__gemm;

/* n rounded up to whole panels of any level */
MOD__FN size_t mod__whole(int n) { return ((size_t)n + MOD__WIDEST - 1) & ~(size_t)(MOD__WIDEST - 1); }

/* B[k, n] in panels: panel by panel, each [k, panel], the last filled up with zeros. */
MOD__FN void mod__to_panels(mod_real *MOD__RESTRICT out, size_t panel, const mod_real *MOD__RESTRICT b, size_t b_row,
                            size_t b_col, int k, int n)
{
   size_t left = (size_t)n, rows = (size_t)k, width, q, j;
   if (left % panel) memset(out + left / panel * panel * rows, 0, rows * panel * sizeof *out);
   for (q = 0; q < rows && b_col == 1; ++q) { /* row by row, as it lies in memory */
      const mod_real *from = b + q * b_row;
      mod_real *to = out + q * panel;
      for (left = (size_t)n; left > 0; left -= width, from += width, to += rows * panel) {
         width = left < panel ? left : panel;
         for (j = 0; j + 8 <= width; j += 8) memcpy(to + j, from + j, 8 * sizeof *b);
         for (; j < width; ++j) to[j] = from[j];
      }
   }
   if (b_col == 1) return;
   for (; left > 0; left -= width, b += width * b_col, out += rows * panel) {
      width = left < panel ? left : panel;
      for (j = 0; j + 4 <= width; j += 4) { /* four columns of B at a time: a part of a line of the cache */
         const mod_real *b0 = b + j * b_col, *b1 = b0 + b_col, *b2 = b1 + b_col, *b3 = b2 + b_col;
         mod_real *to = out + j;
         for (q = 0; q < rows * b_row; q += b_row, to += panel) {
            to[0] = b0[q];
            to[1] = b1[q];
            to[2] = b2[q];
            to[3] = b3[q];
         }
      }
      for (; j < width; ++j)
         for (q = 0; q < rows; ++q) out[q * panel + j] = b[q * b_row + j * b_col];
   }
}

/* Numbers of a block of B[k, n] in panels, and bytes of scratch for each thread: that and, if B is wide enough, some
   rows of A[m, k]. */
MOD__FN size_t mod__gemm_block(int k, int n)
{
   return (size_t)mod__min(k, MOD__BLOCK) * mod__whole(mod__min(n, MOD__BLOCK));
}

MOD__FN size_t mod__gemm_scratch(int m, int n, int k)
{
   int rows = n > MOD__WIDEST ? mod__min(m, MOD__A_ROWS) : 0;
   return (mod__gemm_block(k, n) + (size_t)mod__min(k, MOD__BLOCK) * (size_t)rows) * sizeof(mod_real);
}

MOD__FN void mod__gemm_part(void *arg, mod__range r)
{
   const mod__gemm *g = (const mod__gemm *)arg;
   int first = g->by_rows ? 0 : r.lo * MOD__WIDEST, last = g->by_rows ? g->n : mod__min(g->n, r.hi * MOD__WIDEST);
   int top = g->by_rows ? r.lo : 0, bottom = g->by_rows ? r.hi : g->m;
   const size_t panel = (size_t)r.use->panel;
   int i, j, q, direct = bottom - top <= 8 && g->b_col == 1 && g->n % r.use->panel == 0; /* a copy would not pay */
   mod__product p;
   p.c_row = (size_t)g->n;
   p.b_row = direct ? g->b_row : panel;
   for (j = first; j < last; j += MOD__BLOCK) {
      p.n = mod__min(last - j, MOD__BLOCK);
      for (q = 0; q < g->k; q += MOD__BLOCK) {
         const mod_real *b = g->b + (size_t)q * g->b_row + (size_t)j * g->b_col;
         p.k = mod__min(g->k - q, MOD__BLOCK);
         p.b = direct ? b : (const mod_real *)r.scratch;
         p.b_panel = direct ? panel : (size_t)p.k * panel;
         if (!direct) mod__to_panels((mod_real *)r.scratch, panel, b, g->b_row, g->b_col, p.k, p.n);
         p.accumulate = g->accumulate || q > 0;
         for (i = top; i < bottom; i += MOD__A_ROWS) {
            p.m = mod__min(bottom - i, MOD__A_ROWS);
            p.a = g->a + (size_t)i * g->a_row + (size_t)q * g->a_col;
            p.a_row = g->a_row;
            p.a_col = g->a_col;
            if (!direct && p.n > (g->a_col == 1 ? MOD__BLOCK / 2 : MOD__WIDEST)) { /* enough panels for a dense copy */
               mod_real *rows = (mod_real *)r.scratch + mod__gemm_block(g->k, g->n);
               mod__to_panels(rows, (size_t)p.k, p.a, g->a_row, g->a_col, p.m, p.k);
               p.a = rows;
               p.a_row = (size_t)p.k;
               p.a_col = 1;
            }
            p.c = g->c + (size_t)i * p.c_row + j;
            r.use->multiply(&p);
         }
      }
   }
}

/* =================================================================================================================
   >>route  Routing on plain arrays: capacity to k, exact top-k, threshold, token-choice
   ================================================================================================================= */

MODDEF int mod_route_capacity(int n_tokens, double capacity)
{
   int k;
   if (n_tokens < 0 || !(capacity > 0 && capacity <= 1)) return -1;
   k = (int)floor(capacity * n_tokens + 1e-6); /* 0.29 * 200 is a little below 58 */
   return mod__min(mod__max(k, 1), n_tokens);
}

/* An integer that orders as the score does: bigger score, bigger key; -0 and +0 the same. Not for NaN. */
#ifdef MOD_USE_DOUBLE
typedef uint64_t mod__key;
#else
typedef uint32_t mod__key;
#endif
enum { MOD__KEY_BITS = 8 * (int)sizeof(mod__key) };

MOD__FN mod__key mod__key_of(mod_real score)
{
   mod__key bits, sign = (mod__key)1 << (MOD__KEY_BITS - 1);
   mod_real x = score + 0; /* -0 + 0 is +0 */
   memcpy(&bits, &x, sizeof bits);
   return bits & sign ? ~bits : bits | sign;
}

/* And back. */
MOD__FN mod_real mod__score_of(mod__key key)
{
   mod__key sign = (mod__key)1 << (MOD__KEY_BITS - 1);
   mod_real x;
   key = key & sign ? key ^ sign : ~key;
   memcpy(&x, &key, sizeof x);
   return x;
}

/* The position of the first NaN, or -1. */
MOD__FN int mod__find_nan(const mod_real *x, int n)
{
   int i;
   for (i = 0; i < n; ++i)
      if (mod__nan((double)x[i])) return i;
   return -1;
}

/* The key of the k-th largest score, k in [1, n], found bit by bit: the largest key that at least k scores reach. */
MOD__FN mod__key mod__kth_key(const mod_real *score, int n, int k)
{
   mod__key key = 0, bit;
   for (bit = (mod__key)1 << (MOD__KEY_BITS - 1); bit; bit >>= 1) {
      int i, reach = 0;
      for (i = 0; i < n; ++i) reach += mod__key_of(score[i]) >= (key | bit);
      if (reach >= k) key |= bit;
   }
   return key;
}

/* How many scores equal to the k-th are among the k best. */
MOD__FN int mod__ties_kept(const mod_real *score, int n, int k, mod__key kth)
{
   int i, above = 0;
   for (i = 0; i < n; ++i) above += mod__key_of(score[i]) > kth;
   return k - above;
}

MODDEF mod_result mod_route_topk(const mod_real *score, int n, int k, int *kept, mod_error *err)
{
   mod__key kth;
   int i, ties, count = 0;
   if (n < 0 || k < 0 || k > n) return mod__bad(err, "k must be in [0, n]");
   if (n > 0 && (!score || !kept)) return mod__bad(err, "score or kept is NULL");
   if ((i = mod__find_nan(score, n)) >= 0) return mod__error(err, MOD_RESULT_NUMERIC, "a score is NaN", -1, i);
   if (k > 0) {
      kth = mod__kth_key(score, n, k);
      ties = mod__ties_kept(score, n, k, kth);
      for (i = 0; i < n; ++i) {
         mod__key key = mod__key_of(score[i]);
         if (key > kth || (key == kth && ties-- > 0)) kept[count++] = i;
      }
      MOD_ASSERT(count == k);
   }
   return mod__ok(err);
}

MODDEF mod_result mod_route_threshold(const mod_real *score, int n, double theta, int *kept, int *n_kept,
                                      mod_error *err)
{
   int i, count = 0;
   if (n < 0 || !n_kept) return mod__bad(err, "n must be at least 0, and n_kept not NULL");
   if (n > 0 && (!score || !kept)) return mod__bad(err, "score or kept is NULL");
   if (mod__nan(theta)) return mod__error(err, MOD_RESULT_NUMERIC, "the threshold is NaN", -1, -1);
   if ((i = mod__find_nan(score, n)) >= 0) return mod__error(err, MOD_RESULT_NUMERIC, "a score is NaN", -1, i);
   for (i = 0; i < n; ++i)
      if ((double)score[i] > theta) kept[count++] = i;
   *n_kept = count;
   return mod__ok(err);
}

MODDEF int mod_route_slots(int n, double share)
{
   if (n < 0 || !(share > 0) || !mod__finite(share)) return -1;
   return share >= 1 ? n : mod__min((int)-floor(1e-6 - share * n), n);
}

/* Of n rows, how many a share of them is: rounded up, or down but at least 1. */
MOD__FN int mod__share_of(int n, double share, int up)
{
   return up ? mod_route_slots(n, share) : mod_route_capacity(n, share);
}

MODDEF mod_result mod_route_choose(const mod_real *score, int n, int n_paths, int choices, const int *slots, int *used,
                                   int *path, int *slot, mod_error *err)
{
   int i, c, e, earlier;
   if (n < 0 || n_paths < 1 || choices < 1 || choices > n_paths)
      return mod__bad(err, "n >= 0 and 1 <= choices <= n_paths are needed");
   if (!used || (n > 0 && (!score || !path || !slot))) return mod__bad(err, "score, used, path or slot is NULL");
   for (e = 0; e < n_paths; ++e)
      if (used[e] < 0) return mod__error(err, MOD_RESULT_ARG, "used is negative: zero it before the first call", -1, e);
   for (i = 0; i < n; ++i)
      if (mod__find_nan(score + (size_t)i * (size_t)n_paths, n_paths) >= 0)
         return mod__error(err, MOD_RESULT_NUMERIC, "a score is NaN", -1, i);
   for (i = 0; i < n; ++i, score += n_paths, path += choices, slot += choices)
      for (c = 0; c < choices; ++c) {
         int best = -1;
         for (e = 0; e < n_paths; ++e) {
            for (earlier = 0; earlier < c && path[earlier] != e; ++earlier) continue;
            if (earlier == c && (best < 0 || score[e] > score[best])) best = e;
         }
         path[c] = best;
         slot[c] = !slots || slots[best] < 0 || used[best] < slots[best] ? used[best]++ : -1;
      }
   return mod__ok(err);
}

/* =================================================================================================================
   >>tape  Tape: what every op stands on
   ================================================================================================================= */

struct mod_tape {
   mod_allocator allocator; /* of mod_tape_create */
   mod_arena arena;   /* everything, this struct included; while measuring: no memory, only the count */
   mod_arena stub;    /* the memory given; while measuring it holds the tensors' descriptions */
   mod_tape_desc desc; /* resolved */
   mod_tensor *last;   /* newest tensor with a backward pass */
   size_t start;
   uint64_t resets;
   size_t backward_scratch; /* most that the backward pass of any op needs beside the tensors */
   double flops;
   int backward_done;
   mod_error error;
};

/* A tape's desc with what trainers and sessions have of it. */
MOD__FN mod_tape_desc mod__threads(int n_threads, mod_simd simd, mod_jobs jobs)
{
   mod_tape_desc d;
   memset(&d, 0, sizeof d);
   d.n_threads = n_threads;
   d.simd = simd;
   d.jobs = jobs;
   return d;
}

/* Chooses the level, or says what is wrong. */
MOD__FN const char *mod__settle_threads(mod_tape_desc *d)
{
   if (d->simd == MOD_SIMD_BEST) d->simd = mod_simd_best();
   if (!mod__has_level(d->simd)) return "simd: this build or this processor does not have that level";
   return d->n_threads < 1 || d->n_threads > 1024 ? "n_threads must be in [1, 1024]" : NULL;
}

MODDEF mod_tape *mod_tape_init(const mod_tape_desc *desc, void *memory, size_t size, mod_error *err)
{
   mod_tape *t = (mod_tape *)memory;
   const size_t start = (sizeof *t + MOD__ALIGN - 1) & ~(size_t)(MOD__ALIGN - 1);
   const char *complaint;
   mod_arena whole;
   mod_tape_desc d;
   memset(&d, 0, sizeof d);
   if (desc) d = *desc;
   d.n_threads = d.n_threads ? d.n_threads : 1;
   if (!memory) return mod__bad(err, "memory is NULL"), (mod_tape *)NULL;
   if ((complaint = mod__settle_threads(&d)) != NULL) return mod__bad(err, complaint), (mod_tape *)NULL;
   if (mod_arena_init(&whole, memory, size, err) != MOD_RESULT_OK) return NULL;
   if (size < start) return mod__too_small(err), (mod_tape *)NULL;
   memset(t, 0, sizeof *t);
   t->desc = d;
   t->arena = d.measure ? mod__counter() : whole;
   t->stub = whole;
   t->start = t->stub.used = t->arena.used = t->arena.peak = start;
   mod__ok(&t->error);
   mod__ok(err);
   return t;
}

MODDEF mod_tape *mod_tape_create(const mod_tape_desc *desc, size_t size, const mod_allocator *allocator, mod_error *err)
{
   mod_allocator chosen;
   void *memory;
   if (size < sizeof(mod_tape))
      return mod__error(err, MOD_RESULT_MEMORY, "the memory asked for is too small", -1, -1), (mod_tape *)NULL;
   if ((memory = mod__allocate(&chosen, allocator, size, err)) == NULL) return NULL;
   return (mod_tape *)mod__created(mod_tape_init(desc, memory, size, err), memory, &chosen);
}

MODDEF void mod_tape_destroy(mod_tape *tape) { mod__destroy(tape); }

MODDEF void mod_tape_reset(mod_tape *tape)
{
   if (!tape) return;
   tape->arena.used = tape->stub.used = tape->start;
   ++tape->resets;
   tape->last = NULL;
   tape->backward_scratch = 0;
   tape->backward_done = 0;
   tape->flops = 0;
   mod__ok(&tape->error);
}

MODDEF mod_mark mod_tape_mark(const mod_tape *tape)
{
   mod_mark mark;
   memset(&mark, 0, sizeof mark);
   if (tape) {
      mark.used = tape->arena.used;
      mark.described = tape->stub.used;
      mark.last = tape->last;
      mark.tape = tape;
      mark.resets = tape->resets;
   }
   return mark;
}

MODDEF mod_result mod_tape_rewind(mod_tape *tape, mod_mark mark, mod_error *err)
{
   if (!tape) return mod__bad(err, "tape is NULL");
   if (mark.tape != tape || mark.resets != tape->resets || mark.used > tape->arena.used || mark.used < tape->start ||
       mark.described > tape->stub.used || mark.described < tape->start)
      return mod__bad(err, "the mark is another tape's, from before a reset, or beyond the end of the tape");
   tape->arena.used = mark.used;
   tape->stub.used = mark.described;
   tape->last = mark.last;
   return mod__ok(err);
}

MODDEF mod_result mod_tape_status(const mod_tape *tape, mod_error *err)
{
   if (!tape) return mod__bad(err, "tape is NULL");
   if (err) *err = tape->error;
   return tape->error.code;
}

MODDEF size_t mod_tape_peak(const mod_tape *tape) { return tape ? tape->arena.peak : 0; }
MODDEF double mod_tape_flops(const mod_tape *tape) { return tape ? tape->flops : 0; }

MODDEF void mod_tape_fail(mod_tape *tape, mod_result code, const char *message, int64_t where)
{
   if (!tape || tape->error.code != MOD_RESULT_OK) return;
   if (code == MOD_RESULT_OK || !message) {
      code = MOD_RESULT_ARG;
      message = "mod_tape_fail was called without an error code or without a sentence";
   }
   mod__error(&tape->error, code, message, -1, where);
}

/* Memory for numbers: *out is NULL while measuring. 1 if there is room, else the tape fails. */
MOD__FN int mod__take(mod_tape *t, size_t count, size_t size, void **out)
{
   mod_error e;
   *out = NULL;
   if (mod_arena_push(&t->arena, count, size, out, &e) == MOD_RESULT_OK) return 1;
   mod_tape_fail(t, e.code, e.message, -1);
   return 0;
}

/* Zeroed memory. NULL while measuring, and if the tape has failed. */
MOD__FN void *mod__zeroed(mod_tape *t, size_t count, size_t size)
{
   void *out;
   mod__take(t, count, size, &out);
   if (out) memset(out, 0, count * size);
   return out;
}

MOD__FN int *mod__ints(mod_tape *t, size_t count) { return (int *)mod__zeroed(t, count, sizeof(int)); }

/* Zeroed memory for a description, real even while measuring. NULL: the tape has failed. */
MOD__FN void *mod__describe(mod_tape *t, size_t size)
{
   void *out;
   mod_error e;
   if (!mod__take(t, 1, size, &out)) return NULL;
   if (t->desc.measure && mod_arena_push(&t->stub, 1, size, &out, &e) != MOD_RESULT_OK) {
      mod_tape_fail(t, e.code, "the measuring tape's memory is too small for its descriptions", -1);
      return NULL;
   }
   memset(out, 0, size);
   return out;
}

/* Scratch for each thread, of at most `shares`, beyond what is in use, until the next op; mod__run finds it. 0: the
   tape has failed. */
MOD__FN int mod__scratch(mod_tape *t, size_t per_thread, int shares)
{
   size_t used = t->arena.used;
   void *out;
   if (!mod__take(t, mod__scratch_bytes(per_thread, mod__min(shares, t->desc.n_threads)), 1, &out)) return 0;
   t->arena.used = used;
   return 1;
}

/* Notes what the backward pass of y needs beside the tensors, for each thread. */
MOD__FN void mod__backward_scratch(mod_tape *t, const mod_tensor *y, size_t per_thread, int shares)
{
   size_t bytes = mod__scratch_bytes(per_thread, mod__min(shares, t->desc.n_threads));
   if (y->backward && t->backward_scratch < bytes) t->backward_scratch = bytes;
}

/* Kernels of ops get the op's output, which knows the rest. */
typedef void (*mod__op_kernel)(mod_tensor *y, mod__range r);
typedef struct mod__op_call {
   mod__op_kernel kernel;
   mod_tensor *y;
} mod__op_call;

MOD__FN void mod__call_op(void *arg, mod__range r)
{
   const mod__op_call *call = (const mod__op_call *)arg;
   call->kernel(call->y, r);
}

/* Not while measuring. */
MOD__FN void mod__run(mod_tape *t, mod__op_kernel kernel, mod_tensor *y, int n, double work, size_t scratch)
{
   mod__op_call call = {kernel, y};
   if (t->desc.measure) return;
   mod__parallel(&t->desc, mod__call_op, &call, n, work, scratch ? t->arena.base + t->arena.used : NULL, scratch);
}

/* --- shapes: a tensor is read as a matrix of rows and columns --- */

MOD__FN int mod__cols(const mod_tensor *x) { return x->dim[x->n_dim - 1]; }

MOD__FN int mod__n_rows(const mod_tensor *x)
{
   int i, n = 1;
   for (i = 0; i + 1 < x->n_dim; ++i) n *= x->dim[i];
   return n;
}

MOD__FN size_t mod__count(const mod_tensor *x) { return (size_t)mod__n_rows(x) * (size_t)mod__cols(x); }

/* A kernel over the rows of y that needs no scratch; work: steps for each number. */
MOD__FN void mod__run_rows(mod_tape *t, mod__op_kernel kernel, mod_tensor *y, double work)
{
   mod__run(t, kernel, y, mod__n_rows(y), work * mod__cols(y), 0);
}

MOD__FN int mod__same_shape(const mod_tensor *a, const mod_tensor *b)
{
   return a->n_dim == b->n_dim && !memcmp(a->dim, b->dim, (size_t)a->n_dim * sizeof a->dim[0]);
}

/* 1 if x has one row for each of `rows`. While measuring there may be fewer: n is then the most that there can be. */
MOD__FN int mod__fits(const mod_tape *t, const mod_tensor *x, const mod_rows *rows)
{
   if (x->n_dim < 2 || (x->n_max && !(rows->ragged && x->n_max == rows->n_max))) return 0;
   return x->dim[0] == rows->n || (t->desc.measure && rows->ragged && x->dim[0] < rows->n);
}

/* 1 if the tape stands and the tensors (b and c may be absent: give a again) are there. */
MOD__FN int mod__ready(mod_tape *t, const mod_tensor *a, const mod_tensor *b, const mod_tensor *c)
{
   if (!t || t->error.code != MOD_RESULT_OK) return 0;
   if (a && b && c) return 1;
   mod_tape_fail(t, MOD_RESULT_ARG, "an input tensor is NULL", -1);
   return 0;
}

MOD__FN mod_tensor *mod__refuse(mod_tape *t, mod_result code, const char *message, int64_t where)
{
   mod_tape_fail(t, code, message, where);
   return NULL;
}

MOD__FN mod_tensor *mod__shape_error(mod_tape *t, const char *message)
{
   return mod__refuse(t, MOD_RESULT_SHAPE, message, -1);
}

/* A tensor without data. n_max: see mod_tensor. Refuses shapes whose rows do not fit an int or whose bytes a size_t. */
MOD__FN mod_tensor *mod__describe_tensor(mod_tape *t, int n_dim, const int *dim, int n_max)
{
   mod_tensor *y;
   size_t count = 1, bytes;
   int i;
   if (n_dim < 1 || n_dim > MOD_TENSOR_MAX_DIM || !dim)
      return mod__refuse(t, MOD_RESULT_ARG, "a tensor has 1 to 4 dimensions", n_dim);
   for (i = 0; i < n_dim; ++i) {
      int most = i == 0 && n_max > dim[0] ? n_max : dim[i];
      if (dim[i] < 0 || dim[i] > 1 << 30)
         return mod__refuse(t, MOD_RESULT_ARG, "a dimension is negative, or too large", i);
      if (!mod__mul(&count, count, (size_t)(most ? most : 1)) || (i + 1 < n_dim && count > 1 << 30) ||
          !mod__mul(&bytes, count, sizeof(mod_real)))
         return mod__refuse(t, MOD_RESULT_ARG, "a tensor is too large", i);
   }
   y = (mod_tensor *)mod__describe(t, sizeof *y);
   if (!y) return NULL;
   y->n_dim = n_dim;
   memcpy(y->dim, dim, (size_t)n_dim * sizeof *dim);
   y->n_max = n_max;
   return y;
}

/* Rows of x, those that depend on the data at their maximum. */
MOD__FN int mod__max_rows(const mod_tensor *x)
{
   int i, n = x->n_dim == 1 ? 1 : x->n_max ? x->n_max : x->dim[0];
   for (i = 1; i + 1 < x->n_dim; ++i) n *= x->dim[i]; /* fits: mod__describe_tensor */
   return n;
}

/* Numbers to reserve for a tensor: rows that depend on the data count with their maximum. */
MOD__FN size_t mod__reserved(const mod_tensor *y) { return (size_t)mod__max_rows(y) * (size_t)mod__cols(y); }

/* Records y as made from its inputs, and gives it a gradient if one of them has one. */
MOD__FN int mod__record(mod_tape *t, mod_tensor *y, mod_tensor *a, mod_tensor *b, mod_tensor *c,
                        void (*backward)(mod_tape *, mod_tensor *))
{
   void *grad;
   y->in[0] = a;
   y->in[1] = b;
   y->in[2] = c;
   if (t->desc.forward_only || !backward) return 1;
   if (!((a && a->grad) || (b && b->grad) || (c && c->grad))) return 1;
   if (!y->grad) {
      if (!mod__take(t, mod__reserved(y), sizeof(mod_real), &grad)) return 0;
      y->grad = (mod_real *)(t->desc.measure ? (void *)t : grad); /* a mark that there would be one, never read */
   }
   y->backward = backward;
   y->previous = t->last;
   t->last = y;
   return 1;
}

/* The output of an op: description, numbers, gradient. */
MOD__FN mod_tensor *mod__output(mod_tape *t, int n_dim, const int *dim, int n_max, mod_tensor *a, mod_tensor *b,
                                mod_tensor *c, void (*backward)(mod_tape *, mod_tensor *))
{
   mod_tensor *y = mod__describe_tensor(t, n_dim, dim, n_max);
   void *data;
   if (!y || !mod__take(t, mod__reserved(y), sizeof(mod_real), &data)) return NULL;
   y->data = (mod_real *)data;
   return mod__record(t, y, a, b, c, backward) ? y : NULL;
}

/* Like x, with `cols` columns. */
MOD__FN mod_tensor *mod__output_like(mod_tape *t, const mod_tensor *x, int cols, mod_tensor *a, mod_tensor *b,
                                     mod_tensor *c, void (*backward)(mod_tape *, mod_tensor *))
{
   int dim[MOD_TENSOR_MAX_DIM];
   memcpy(dim, x->dim, sizeof dim);
   dim[x->n_dim - 1] = cols;
   return mod__output(t, x->n_dim, dim, x->n_max, a, b, c, backward);
}

/* y is x in another shape: the same data. */
MOD__FN mod_tensor *mod__alias(mod_tape *t, mod_tensor *x, int n_dim, const int *dim, int n_max)
{
   mod_tensor *y = mod__describe_tensor(t, n_dim, dim, n_max);
   if (y) y->data = x->data;
   return y;
}

MODDEF mod_result mod_tape_backward(mod_tape *t, mod_tensor *loss, mod_error *err)
{
   mod_tensor *y;
   size_t used;
   void *scratch;
   if (!t) return mod__bad(err, "tape is NULL");
   if (t->error.code != MOD_RESULT_OK) return mod_tape_status(t, err);
   if (!loss) return mod__bad(err, "loss is NULL");
   if (mod__count(loss) != 1) return mod__error(err, MOD_RESULT_SHAPE, "the loss must be one number", -1, -1);
   if (!loss->grad)
      return mod__error(err, MOD_RESULT_STATE, "the loss depends on nothing that has a gradient", -1, -1);
   if (t->backward_done)
      return mod__error(err, MOD_RESULT_STATE, "backward runs once for each recording: reset the tape", -1, -1);
   used = t->arena.used;
   if (!mod__take(t, t->backward_scratch, 1, &scratch)) return mod_tape_status(t, err);
   t->arena.used = used;
   t->backward_done = 1;
   if (t->desc.measure) return mod__ok(err);
   for (y = t->last; y; y = y->previous) memset(y->grad, 0, mod__count(y) * sizeof(mod_real));
   loss->grad[0] += 1;
   for (y = t->last; y; y = y->previous) y->backward(t, y); /* an op comes after what it reads: no sorting needed */
   return mod_tape_status(t, err);
}

/* =================================================================================================================
   >>ops  Ops: for each its equation, shapes, forward, backward

   A forward kernel fills rows lo .. hi-1 of y->data. A backward pass adds to the gradients of its inputs; dx below is
   d(loss)/d(x). Kernels get a range so that threads can share the work.
   ================================================================================================================= */

MODDEF mod_tensor *mod_leaf(mod_tape *tape, mod_real *data, mod_real *grad, int n_dim, const int *dim)
{
   mod_tensor *y;
   if (!tape || tape->error.code != MOD_RESULT_OK) return NULL;
   if (!data && !tape->desc.measure) return mod__refuse(tape, MOD_RESULT_ARG, "a leaf needs data", -1);
   if ((y = mod__describe_tensor(tape, n_dim, dim, 0)) == NULL) return NULL;
   y->data = data;
   y->grad = tape->desc.forward_only ? NULL : grad;
   return y;
}

/* --- matmul: C = A B, A B^T or A^T B; dA += dC B^T, dB += A^T dC, transposed as A and B are ---
   One chain per element over the inner index, ascending. 2 m n k FLOPs forward, twice that backward. */

enum { MOD__NN, MOD__NT, MOD__TN }; /* A [m, k] B [k, n];  A [m, k] B^T, B [n, k];  A^T B, A [k, m], B [k, n] */

MOD__FN void mod__gemm_run(mod_tape *t, int form, mod_real *c, const mod_real *a, const mod_real *b, int m, int n,
                           int k, int accumulate)
{
   const size_t a_row = form == MOD__TN ? 1 : (size_t)k, a_col = form == MOD__TN ? (size_t)m : 1;
   const size_t b_row = form == MOD__NT ? 1 : (size_t)n, b_col = form == MOD__NT ? (size_t)k : 1;
   mod__gemm g = {c, a, b, a_row, a_col, b_row, b_col, m, n, k, accumulate, 0};
   int shares = (int)(mod__whole(n) / MOD__WIDEST), threads = t->desc.n_threads;
   size_t scratch = mod__gemm_scratch(m, n, k);
   if (m == 0 || n == 0 || k == 0) {
      if (!accumulate && m > 0 && n > 0) memset(c, 0, (size_t)m * (size_t)n * sizeof *c);
      return;
   }
   g.by_rows = m > n || (shares % threads && m >= 8 * threads); /* each thread copies the part of B that it needs */
   mod__parallel(&t->desc, mod__gemm_part, &g, g.by_rows ? m : shares, /* sixteen FLOPs: a step */
                 2.0 / 16 * k * (g.by_rows ? n : (double)m * (int)MOD__WIDEST),
                 scratch ? t->arena.base + t->arena.used : NULL, scratch);
}

MOD__FN void mod__matmul_backward(mod_tape *t, mod_tensor *y)
{
   mod_tensor *A = y->in[0], *B = y->in[1];
   const mod_real *a = A->data, *b = B->data, *dc = y->grad;
   int m = mod__n_rows(y), n = mod__cols(y), form = y->option[0], k = form == MOD__TN ? A->dim[0] : mod__cols(A);
   if (A->grad) {
      if (form == MOD__NN) mod__gemm_run(t, MOD__NT, A->grad, dc, b, m, k, n, 1); /* dC B^T */
      if (form == MOD__NT) mod__gemm_run(t, MOD__NN, A->grad, dc, b, m, k, n, 1); /* dC B */
      if (form == MOD__TN) mod__gemm_run(t, MOD__NT, A->grad, b, dc, k, m, n, 1); /* B dC^T */
   }
   if (B->grad) {
      if (form == MOD__NN) mod__gemm_run(t, MOD__TN, B->grad, a, dc, k, n, m, 1); /* A^T dC */
      if (form == MOD__NT) mod__gemm_run(t, MOD__TN, B->grad, dc, a, n, k, m, 1); /* dC^T A */
      if (form == MOD__TN) mod__gemm_run(t, MOD__NN, B->grad, a, dc, k, n, m, 1); /* A dC */
   }
}

MOD__FN mod_tensor *mod__matmul(mod_tape *t, mod_tensor *a, mod_tensor *b, int form)
{
   mod_tensor *y;
   int m, n, k, dim[2];
   if (!mod__ready(t, a, b, a)) return NULL;
   if (b->n_dim != 2 || (form != MOD__NN && a->n_dim != 2))
      return mod__shape_error(t, "matmul: matrices of two dimensions are needed, but for the left of a plain product");
   if (form == MOD__NN ? b->n_max || a->n_dim < 2 : form == MOD__NT ? b->n_max : !a->n_max != !b->n_max)
      return mod__shape_error(t, "matmul: rows that depend on the data can only be the left side's, or be summed over");
   m = form == MOD__TN ? mod__cols(a) : mod__n_rows(a);
   k = form == MOD__TN ? a->dim[0] : mod__cols(a);
   n = form == MOD__NT ? b->dim[0] : mod__cols(b);
   if (k != (form == MOD__NT ? mod__cols(b) : b->dim[0]))
      return mod__shape_error(t, "matmul: the inner dimensions differ");
   dim[0] = m;
   dim[1] = n;
   y = form == MOD__TN ? mod__output(t, 2, dim, 0, a, b, NULL, mod__matmul_backward)
                       : mod__output_like(t, a, n, a, b, NULL, mod__matmul_backward);
   if (!y) return NULL;
   y->option[0] = form;
   t->flops += 2.0 * m * n * k;
   { /* of dA, of dB, of C; for the most rows that there can be */
      int M = mod__max_rows(y), K = form == MOD__TN ? mod__max_rows(a) : k;
      mod__backward_scratch(t, y, form == MOD__TN ? mod__gemm_scratch(K, M, n) : mod__gemm_scratch(M, K, n), INT_MAX);
      mod__backward_scratch(t, y, form == MOD__NT ? mod__gemm_scratch(n, K, M) : mod__gemm_scratch(K, n, M), INT_MAX);
      if (!mod__scratch(t, mod__gemm_scratch(M, n, K), INT_MAX)) return NULL;
   }
   if (!t->desc.measure) mod__gemm_run(t, form, y->data, a->data, b->data, m, n, k, 0);
   return y;
}

MODDEF mod_tensor *mod_matmul(mod_tape *t, mod_tensor *a, mod_tensor *b) { return mod__matmul(t, a, b, MOD__NN); }
MODDEF mod_tensor *mod_matmul_nt(mod_tape *t, mod_tensor *a, mod_tensor *b) { return mod__matmul(t, a, b, MOD__NT); }
MODDEF mod_tensor *mod_matmul_tn(mod_tape *t, mod_tensor *a, mod_tensor *b) { return mod__matmul(t, a, b, MOD__TN); }

/* --- add, sub, mul: y = a + b, a - b, a b, with b broadcast over rows (b is a row) or over columns (b is a column) ---
   da += dy, dy, dy b;  db += dy, -dy, dy a, summed over what it was spread over: rows ascending, or along the row. */

enum { MOD__ADD, MOD__SUB, MOD__MUL };
enum { MOD__SAME, MOD__ROW, MOD__COLUMN };

/* b's element for (i, j) is b[i * row + j * col]. */
MOD__FN void mod__strides(const mod_tensor *y, size_t *row, size_t *col)
{
   *row = y->option[1] == MOD__SAME ? (size_t)mod__cols(y) : y->option[1] == MOD__COLUMN;
   *col = y->option[1] != MOD__COLUMN;
}

MOD__FN void mod__binary_forward(mod_tensor *y, mod__range r)
{
   size_t n = (size_t)mod__cols(y), row, col, j;
   int i;
   mod__strides(y, &row, &col);
   for (i = r.lo; i < r.hi; ++i) {
      const mod_real *a = y->in[0]->data + (size_t)i * n, *b = y->in[1]->data + (size_t)i * row;
      mod_real *out = y->data + (size_t)i * n;
      switch (y->option[0]) {
      case MOD__ADD:
         for (j = 0; j < n; ++j) out[j] = a[j] + b[j * col];
         break;
      case MOD__SUB:
         for (j = 0; j < n; ++j) out[j] = a[j] - b[j * col];
         break;
      default:
         for (j = 0; j < n; ++j) out[j] = a[j] * b[j * col];
      }
   }
}

MOD__FN void mod__binary_da(mod_tensor *y, mod__range r)
{
   size_t n = (size_t)mod__cols(y), row, col, j;
   int i;
   mod__strides(y, &row, &col);
   for (i = r.lo; i < r.hi; ++i) {
      const mod_real *dy = y->grad + (size_t)i * n, *b = y->in[1]->data + (size_t)i * row;
      mod_real *da = y->in[0]->grad + (size_t)i * n;
      if (y->option[0] == MOD__MUL)
         for (j = 0; j < n; ++j) da[j] += dy[j] * b[j * col];
      else
         for (j = 0; j < n; ++j) da[j] += dy[j];
   }
}

/* Same shape or column: rows lo .. hi-1 of b. */
MOD__FN void mod__binary_db(mod_tensor *y, mod__range r)
{
   size_t n = (size_t)mod__cols(y), j;
   int i, op = y->option[0];
   for (i = r.lo; i < r.hi; ++i) {
      const mod_real *dy = y->grad + (size_t)i * n, *a = y->in[0]->data + (size_t)i * n;
      mod_real *db = y->in[1]->grad;
      if (y->option[1] == MOD__COLUMN) {
         mod_real sum = op == MOD__MUL ? r.use->dot(dy, a, n) : r.use->sum(dy, n);
         db[i] += op == MOD__SUB ? -sum : sum;
         continue;
      }
      db += (size_t)i * n;
      if (op == MOD__MUL)
         for (j = 0; j < n; ++j) db[j] += dy[j] * a[j];
      else
         for (j = 0; j < n; ++j) db[j] += op == MOD__SUB ? -dy[j] : dy[j];
   }
}

/* Row: columns lo .. hi-1 of b. */
MOD__FN void mod__binary_db_row(mod_tensor *y, mod__range r)
{
   size_t n = (size_t)mod__cols(y);
   int i, j, rows = mod__n_rows(y);
   mod_real *db = y->in[1]->grad;
   for (i = 0; i < rows; ++i) {
      const mod_real *dy = y->grad + (size_t)i * n, *a = y->in[0]->data + (size_t)i * n;
      for (j = r.lo; j < r.hi; ++j)
         db[j] += y->option[0] == MOD__MUL ? dy[j] * a[j] : y->option[0] == MOD__SUB ? -dy[j] : dy[j];
   }
}

MOD__FN void mod__binary_backward(mod_tape *t, mod_tensor *y)
{
   if (y->in[0]->grad) mod__run_rows(t, mod__binary_da, y, 1);
   if (!y->in[1]->grad) return;
   if (y->option[1] == MOD__ROW)
      mod__run(t, mod__binary_db_row, y, mod__cols(y), mod__n_rows(y), 0);
   else
      mod__run_rows(t, mod__binary_db, y, 1);
}

MOD__FN mod_tensor *mod__binary(mod_tape *t, mod_tensor *a, mod_tensor *b, int op)
{
   mod_tensor *y;
   int spread;
   if (!mod__ready(t, a, b, a)) return NULL;
   if (mod__same_shape(a, b) && !a->n_max == !b->n_max)
      spread = MOD__SAME;
   else if (mod__cols(b) == mod__cols(a) && mod__n_rows(b) == 1 && !b->n_max)
      spread = MOD__ROW;
   else if (b->n_dim == 2 && b->dim[1] == 1 && b->dim[0] == mod__n_rows(a) && !a->n_max == !b->n_max)
      spread = MOD__COLUMN;
   else
      return mod__shape_error(t, "add, sub, mul: b must have a's shape, or be one row or one column of it");
   y = mod__output_like(t, a, mod__cols(a), a, b, NULL, mod__binary_backward);
   if (!y) return NULL;
   y->option[0] = op;
   y->option[1] = spread;
   mod__run_rows(t, mod__binary_forward, y, 1);
   return y;
}

MODDEF mod_tensor *mod_add(mod_tape *tape, mod_tensor *a, mod_tensor *b) { return mod__binary(tape, a, b, MOD__ADD); }
MODDEF mod_tensor *mod_sub(mod_tape *tape, mod_tensor *a, mod_tensor *b) { return mod__binary(tape, a, b, MOD__SUB); }
MODDEF mod_tensor *mod_mul(mod_tape *tape, mod_tensor *a, mod_tensor *b) { return mod__binary(tape, a, b, MOD__MUL); }

MODDEF mod_tensor *mod_bias(mod_tape *tape, mod_tensor *x, mod_tensor *b)
{
   if (!mod__ready(tape, x, b, x)) return NULL;
   if (b->n_dim != 1 || b->dim[0] != mod__cols(x))
      return mod__shape_error(tape, "bias: b must be one number for each column of x");
   return mod__binary(tape, x, b, MOD__ADD);
}

/* --- element by element: y = f(x), dx += dy f'(x); f and f' stand in MOD__MAPS of >>kernels --- */

MOD__FN void mod__map_forward(mod_tensor *y, mod__range r)
{
   size_t n = (size_t)mod__cols(y), at = (size_t)r.lo * n;
   r.use->map[y->option[1]].forward(y->data + at, y->in[0]->data + at, (size_t)(r.hi - r.lo) * n, (mod_real)y->value,
                                    y->option[0]);
}

MOD__FN void mod__map_dx(mod_tensor *y, mod__range r)
{
   mod_tensor *x = y->in[0];
   size_t n = (size_t)mod__cols(y), at = (size_t)r.lo * n;
   r.use->map[y->option[1]].dx(x->grad + at, y->grad + at, x->data + at, y->data + at, (size_t)(r.hi - r.lo) * n,
                               (mod_real)y->value, y->option[0]);
}

MOD__FN void mod__map_backward(mod_tape *t, mod_tensor *y) { mod__run_rows(t, mod__map_dx, y, 16); }

MOD__FN mod_tensor *mod__unary(mod_tape *t, mod_tensor *x, int map, double r, int k)
{
   mod_tensor *y;
   if (!mod__ready(t, x, x, x)) return NULL;
   if ((y = mod__output_like(t, x, mod__cols(x), x, NULL, NULL, mod__map_backward)) == NULL) return NULL;
   y->value = r;
   y->option[0] = k;
   y->option[1] = map;
   mod__run_rows(t, mod__map_forward, y, 16);
   return y;
}

MODDEF mod_tensor *mod_exp(mod_tape *tape, mod_tensor *x) { return mod__unary(tape, x, MOD__MAP_exp, 0, 0); }
MODDEF mod_tensor *mod_log(mod_tape *tape, mod_tensor *x) { return mod__unary(tape, x, MOD__MAP_log, 0, 0); }
MODDEF mod_tensor *mod_gelu(mod_tape *tape, mod_tensor *x) { return mod__unary(tape, x, MOD__MAP_gelu, 0, 0); }
MODDEF mod_tensor *mod_silu(mod_tape *tape, mod_tensor *x) { return mod__unary(tape, x, MOD__MAP_silu, 0, 0); }
MODDEF mod_tensor *mod_relu(mod_tape *tape, mod_tensor *x) { return mod__unary(tape, x, MOD__MAP_relu, 0, 0); }
MODDEF mod_tensor *mod_sigmoid(mod_tape *tape, mod_tensor *x) { return mod__unary(tape, x, MOD__MAP_sigmoid, 0, 0); }
MODDEF mod_tensor *mod_tanh(mod_tape *tape, mod_tensor *x) { return mod__unary(tape, x, MOD__MAP_tanh, 0, 0); }

MODDEF mod_tensor *mod_scale(mod_tape *tape, mod_tensor *x, double s)
{
   if (!mod__ready(tape, x, x, x)) return NULL;
   if (!(fabs(s) <= (double)FLT_MAX)) return mod__refuse(tape, MOD_RESULT_ARG, "scale: the factor is not finite", -1);
   return mod__unary(tape, x, MOD__MAP_scale, s, 0);
}

MODDEF mod_tensor *mod_gate(mod_tape *tape, mod_tensor *r, mod_gate_kind kind, double a)
{
   if (!mod__ready(tape, r, r, r)) return NULL;
   if ((int)kind < MOD_GATE_RAW || (int)kind > MOD_GATE_ONE || !(fabs(a) <= (double)FLT_MAX))
      return mod__refuse(tape, MOD_RESULT_ARG, "gate: no such kind, or its scale is not finite", (int)kind);
   return mod__unary(tape, r, MOD__MAP_gate, a, (int)kind);
}

/* --- softmax along a row: y_j = exp(x_j - m) / sum, m the largest; dx = y (dy - <dy, y>). Of (r, 0) it is sigmoid(r)
   to the bit. logsumexp: y = log sum + m; dx = dy softmax(x). Saved: m and the sum of every row. --- */

MOD__FN void mod__softmax_forward(mod_tensor *y, mod__range r)
{
   size_t n = (size_t)mod__cols(y), j;
   int i;
   for (i = r.lo; i < r.hi && n; ++i) {
      const mod_real *x = y->in[0]->data + (size_t)i * n;
      mod_real *out = y->data + (size_t)i * n;
      mod_real sum = r.use->exp_row(out, x, n, r.use->largest(x, n), 1);
      for (j = 0; j < n; ++j) out[j] /= sum;
   }
}

MOD__FN void mod__softmax_dx(mod_tensor *y, mod__range r)
{
   size_t n = (size_t)mod__cols(y), j;
   int i;
   for (i = r.lo; i < r.hi; ++i) {
      const mod_real *p = y->data + (size_t)i * n, *dy = y->grad + (size_t)i * n;
      mod_real *dx = y->in[0]->grad + (size_t)i * n, inner = r.use->dot(dy, p, n);
      for (j = 0; j < n; ++j) dx[j] += p[j] * (dy[j] - inner);
   }
}

MOD__FN void mod__softmax_backward(mod_tape *t, mod_tensor *y) { mod__run_rows(t, mod__softmax_dx, y, 4); }

MODDEF mod_tensor *mod_softmax(mod_tape *tape, mod_tensor *x)
{
   mod_tensor *y;
   if (!mod__ready(tape, x, x, x)) return NULL;
   y = mod__output_like(tape, x, mod__cols(x), x, NULL, NULL, mod__softmax_backward);
   if (y) mod__run_rows(tape, mod__softmax_forward, y, 16);
   return y;
}

MOD__FN void mod__logsumexp_forward(mod_tensor *y, mod__range r)
{
   size_t n = (size_t)mod__cols(y->in[0]);
   int i;
   for (i = r.lo; i < r.hi; ++i) {
      const mod_real *x = y->in[0]->data + (size_t)i * n;
      mod_real *saved = (mod_real *)y->saved + 2 * (size_t)i;
      saved[0] = r.use->largest(x, n);
      saved[1] = r.use->exp_row(NULL, x, n, saved[0], 1);
      y->data[i] = mod__log(saved[1]) + saved[0];
   }
}

MOD__FN void mod__logsumexp_dx(mod_tensor *y, mod__range r) /* scratch: one row */
{
   size_t n = (size_t)mod__cols(y->in[0]), j;
   mod_real *e = (mod_real *)r.scratch;
   int i;
   for (i = r.lo; i < r.hi; ++i) {
      const mod_real *saved = (const mod_real *)y->saved + 2 * (size_t)i;
      mod_real *dx = y->in[0]->grad + (size_t)i * n, d = y->grad[i] / saved[1];
      r.use->exp_row(e, y->in[0]->data + (size_t)i * n, n, saved[0], 1);
      for (j = 0; j < n; ++j) dx[j] += e[j] * d;
   }
}

MOD__FN void mod__logsumexp_backward(mod_tape *t, mod_tensor *y)
{
   int cols = mod__cols(y->in[0]);
   mod__run(t, mod__logsumexp_dx, y, mod__n_rows(y), 16.0 * cols, (size_t)cols * sizeof(mod_real));
}

MODDEF mod_tensor *mod_logsumexp(mod_tape *tape, mod_tensor *x)
{
   mod_tensor *y;
   if (!mod__ready(tape, x, x, x)) return NULL;
   if (x->n_dim < 2 || mod__cols(x) < 1) return mod__shape_error(tape, "logsumexp: x must be [rows, columns]");
   y = mod__output_like(tape, x, 1, x, NULL, NULL, mod__logsumexp_backward);
   if (!y || !mod__take(tape, mod__reserved(y), 2 * sizeof(mod_real), &y->saved)) return NULL;
   mod__backward_scratch(tape, y, (size_t)mod__cols(x) * sizeof(mod_real), INT_MAX);
   mod__run(tape, mod__logsumexp_forward, y, mod__n_rows(y), 16.0 * mod__cols(x), 0);
   return y;
}

/* --- norms along a row: y = (x - mu) s gain + bias, s = 1 / sqrt(mean((x - mu)^2) + eps) ---
   LayerNorm: mu is the mean. RMSNorm: mu is 0 and there is no bias. With z = (x - mu) s and g = dy gain:
   dx = s (g - z mean(g z) [- mean(g), LayerNorm]);  dgain = sum over rows dy z;  dbias = sum over rows dy.
   Saved: mu and s of every row. */

MOD__FN void mod__norm_forward(mod_tensor *y, mod__range r)
{
   size_t n = (size_t)mod__cols(y), j;
   const mod_real *gain = y->in[1] ? y->in[1]->data : NULL, *bias = y->in[2] ? y->in[2]->data : NULL;
   mod_real *saved = (mod_real *)y->saved;
   int i;
   for (i = r.lo; i < r.hi; ++i) {
      const mod_real *x = y->in[0]->data + (size_t)i * n;
      mod_real *out = y->data + (size_t)i * n, mu = 0, s;
      if (y->option[0] == MOD_NORM_LAYER) mu = r.use->sum(x, n) / (mod_real)n;
      for (j = 0; j < n; ++j) out[j] = x[j] - mu;
      s = 1 / mod__sqrt(r.use->dot(out, out, n) / (mod_real)n + (mod_real)y->value);
      for (j = 0; j < n; ++j) out[j] *= s;
      if (gain)
         for (j = 0; j < n; ++j) out[j] *= gain[j];
      if (bias)
         for (j = 0; j < n; ++j) out[j] += bias[j];
      saved[2 * (size_t)i] = mu;
      saved[2 * (size_t)i + 1] = s;
   }
}

/* scratch: two rows, g and z */
MOD__FN void mod__norm_dx(mod_tensor *y, mod__range r)
{
   size_t n = (size_t)mod__cols(y), j;
   const mod_real *gain = y->in[1] ? y->in[1]->data : NULL, *saved = (const mod_real *)y->saved;
   mod_real *g = (mod_real *)r.scratch, *z = g + n;
   int i;
   for (i = r.lo; i < r.hi; ++i) {
      const mod_real *x = y->in[0]->data + (size_t)i * n, *dy = y->grad + (size_t)i * n;
      mod_real *dx = y->in[0]->grad + (size_t)i * n, mean_gz, mean_g = 0;
      mod_real mu = saved[2 * (size_t)i], s = saved[2 * (size_t)i + 1];
      for (j = 0; j < n; ++j) g[j] = gain ? dy[j] * gain[j] : dy[j];
      for (j = 0; j < n; ++j) z[j] = (x[j] - mu) * s;
      mean_gz = r.use->dot(g, z, n) / (mod_real)n;
      if (y->option[0] == MOD_NORM_LAYER) mean_g = r.use->sum(g, n) / (mod_real)n;
      for (j = 0; j < n; ++j) dx[j] += s * ((g[j] - mean_g) - z[j] * mean_gz);
   }
}

/* Columns lo .. hi-1 of gain and bias. */
MOD__FN void mod__norm_dgain(mod_tensor *y, mod__range r)
{
   size_t n = (size_t)mod__cols(y);
   const mod_real *saved = (const mod_real *)y->saved;
   mod_real *dgain = y->in[1] ? y->in[1]->grad : NULL, *dbias = y->in[2] ? y->in[2]->grad : NULL;
   int i, j, rows = mod__n_rows(y);
   for (i = 0; i < rows; ++i) {
      const mod_real *x = y->in[0]->data + (size_t)i * n, *dy = y->grad + (size_t)i * n;
      mod_real mu = saved[2 * (size_t)i], s = saved[2 * (size_t)i + 1];
      if (dgain)
         for (j = r.lo; j < r.hi; ++j) dgain[j] += dy[j] * ((x[j] - mu) * s);
      if (dbias)
         for (j = r.lo; j < r.hi; ++j) dbias[j] += dy[j];
   }
}

MOD__FN void mod__norm_backward(mod_tape *t, mod_tensor *y)
{
   int rows = mod__n_rows(y), cols = mod__cols(y);
   if (y->in[0]->grad) mod__run(t, mod__norm_dx, y, rows, 8.0 * cols, 2 * (size_t)cols * sizeof(mod_real));
   if ((y->in[1] && y->in[1]->grad) || (y->in[2] && y->in[2]->grad))
      mod__run(t, mod__norm_dgain, y, cols, 4.0 * rows, 0);
}

MOD__FN mod_tensor *mod__norm(mod_tape *t, mod_tensor *x, mod_tensor *gain, mod_tensor *bias, double eps, int kind)
{
   mod_tensor *y;
   int cols;
   if (!mod__ready(t, x, x, x)) return NULL;
   cols = mod__cols(x);
   if (cols < 1) return mod__shape_error(t, "norm: x has no columns");
   if ((gain && mod__count(gain) != (size_t)cols) || (bias && mod__count(bias) != (size_t)cols))
      return mod__shape_error(t, "norm: gain and bias must be one number for each column of x");
   if (!mod__positive(eps)) return mod__refuse(t, MOD_RESULT_ARG, "norm: eps must be above 0", -1);
   y = mod__output_like(t, x, cols, x, gain, bias, mod__norm_backward);
   if (!y || !mod__take(t, mod__reserved(y) / (size_t)cols, 2 * sizeof(mod_real), &y->saved)) return NULL;
   y->value = eps;
   y->option[0] = kind;
   mod__backward_scratch(t, y, 2 * (size_t)cols * sizeof(mod_real), INT_MAX);
   mod__run_rows(t, mod__norm_forward, y, 8);
   return y;
}

MODDEF mod_tensor *mod_rmsnorm(mod_tape *tape, mod_tensor *x, mod_tensor *gain, double eps)
{
   return mod__norm(tape, x, gain, NULL, eps, MOD_NORM_RMS);
}

MODDEF mod_tensor *mod_layernorm(mod_tape *tape, mod_tensor *x, mod_tensor *gain, mod_tensor *bias, double eps)
{
   return mod__norm(tape, x, gain, bias, eps, MOD_NORM_LAYER);
}

/* --- embedding: y_i = table row ids[i]; dtable row ids[i] += dy_i, i ascending --- */

MOD__FN void mod__embedding_forward(mod_tensor *y, mod__range r)
{
   const int *ids = (const int *)y->arg[0];
   size_t n = (size_t)mod__cols(y);
   int i;
   for (i = r.lo; i < r.hi; ++i)
      memcpy(y->data + (size_t)i * n, y->in[0]->data + (size_t)ids[i] * n, n * sizeof(mod_real));
}

MOD__FN void mod__embedding_dtable(mod_tensor *y, mod__range r) /* columns lo .. hi-1 */
{
   const int *ids = (const int *)y->arg[0];
   size_t n = (size_t)mod__cols(y);
   int i, j;
   for (i = 0; i < y->dim[0]; ++i) {
      const mod_real *dy = y->grad + (size_t)i * n;
      mod_real *d = y->in[0]->grad + (size_t)ids[i] * n;
      for (j = r.lo; j < r.hi; ++j) d[j] += dy[j];
   }
}

MOD__FN void mod__embedding_backward(mod_tape *t, mod_tensor *y)
{
   mod__run(t, mod__embedding_dtable, y, mod__cols(y), y->dim[0], 0);
}

/* With room for n_max rows, if their number depends on the data. */
MOD__FN mod_tensor *mod__embedding(mod_tape *t, mod_tensor *table, const int *ids, int n, int n_max)
{
   mod_tensor *y;
   int i, dim[2];
   if (!mod__ready(t, table, table, table)) return NULL;
   if (table->n_dim != 2) return mod__shape_error(t, "embedding: the table must be [vocab, d]");
   if (n < 0 || (n > 0 && !ids && !t->desc.measure))
      return mod__refuse(t, MOD_RESULT_ARG, "embedding: ids is NULL or n negative", -1);
   if (!t->desc.measure)
      for (i = 0; i < n; ++i)
         if (ids[i] < 0 || ids[i] >= table->dim[0])
            return mod__refuse(t, MOD_RESULT_RANGE, "embedding: an id is outside the table", i);
   dim[0] = n;
   dim[1] = table->dim[1];
   if ((y = mod__output(t, 2, dim, n_max, table, NULL, NULL, mod__embedding_backward)) == NULL) return NULL;
   y->arg[0] = ids;
   mod__run_rows(t, mod__embedding_forward, y, 1);
   return y;
}

MODDEF mod_tensor *mod_embedding(mod_tape *tape, mod_tensor *table, const int *ids, int n)
{
   return mod__embedding(tape, table, ids, n, 0);
}

/* --- RoPE: (y_2i, y_2i+1) = (c x_2i - s x_2i+1, s x_2i + c x_2i+1), a rotation by position base^(-2i / head_dim) ---
   c and s are its cosine and sine. The gradient is rotated back. */

MODDEF mod_tensor *mod_rope_table(mod_tape *tape, int first, int n, int head_dim, double base)
{
   mod_tensor *y;
   int p, i, dim[2] = {n, head_dim};
   if (!tape || tape->error.code != MOD_RESULT_OK) return NULL;
   if (first < 0 || n < 0 || first > INT_MAX - n || head_dim < 2 || head_dim % 2 || !(base >= 1 && mod__finite(base)))
      return mod__refuse(tape, MOD_RESULT_ARG, "rope: positions >= 0, an even head_dim >= 2 and a base >= 1", -1);
   if ((y = mod__output(tape, 2, dim, 0, NULL, NULL, NULL, NULL)) == NULL) return NULL;
   y->option[0] = first;
   if (tape->desc.measure) return y;
   for (i = 0; i < head_dim; i += 2) {
      double frequency = mod__exp64(-(double)i / head_dim * mod__log64(base)), sine, cosine;
      for (p = 0; p < n; ++p) {
         mod__sincos64((first + p) * frequency, &sine, &cosine);
         y->data[(size_t)p * (size_t)head_dim + (size_t)i] = (mod_real)cosine;
         y->data[(size_t)p * (size_t)head_dim + (size_t)i + 1] = (mod_real)sine;
      }
   }
   return y;
}

/* to (+)= from rotated; direction -1 rotates back. */
MOD__FN void mod__rotate(const mod_tensor *y, const mod_real *from, mod_real *to, mod__range r, mod_real direction,
                         int accumulate)
{
   const int *position = ((const mod_rows *)y->arg[0])->position;
   const mod_tensor *table = (const mod_tensor *)y->arg[1];
   size_t n = (size_t)mod__cols(y), hd = (size_t)mod__cols(table), h, j;
   int i;
   for (i = r.lo; i < r.hi; ++i) {
      const mod_real *turn = table->data + (size_t)(position[i] - table->option[0]) * hd;
      for (h = (size_t)i * n; h < (size_t)(i + 1) * n; h += hd)
         for (j = 0; j < hd; j += 2) {
            mod_real c = turn[j], s = direction * turn[j + 1], a = from[h + j], b = from[h + j + 1];
            mod_real u = c * a + -s * b, v = s * a + c * b; /* a difference here is fused by gcc 12, pragma or not */
            to[h + j] = accumulate ? to[h + j] + u : u;
            to[h + j + 1] = accumulate ? to[h + j + 1] + v : v;
         }
   }
}

MOD__FN void mod__rope_forward(mod_tensor *y, mod__range r) { mod__rotate(y, y->in[0]->data, y->data, r, 1, 0); }
MOD__FN void mod__rope_dx(mod_tensor *y, mod__range r) { mod__rotate(y, y->grad, y->in[0]->grad, r, -1, 1); }
MOD__FN void mod__rope_backward(mod_tape *t, mod_tensor *y) { mod__run_rows(t, mod__rope_dx, y, 4); }

MODDEF mod_tensor *mod_rope(mod_tape *tape, mod_tensor *x, const mod_rows *rows, mod_tensor *table)
{
   mod_tensor *y;
   int i;
   if (!mod__ready(tape, x, table, x)) return NULL;
   if (!rows) return mod__refuse(tape, MOD_RESULT_ARG, "rope: rows is NULL", -1);
   if (x->n_dim != 2 || !mod__fits(tape, x, rows) || table->n_dim != 2 || table->dim[1] % 2 || table->dim[1] < 2 ||
       x->dim[1] % table->dim[1])
      return mod__shape_error(tape, "rope: x must be [rows, heads * head_dim] and the table [positions, head_dim]");
   if (!tape->desc.measure)
      for (i = 0; i < rows->n; ++i)
         if (rows->position[i] < table->option[0] || rows->position[i] - table->option[0] >= table->dim[0])
            return mod__refuse(tape, MOD_RESULT_RANGE, "rope: a position is outside the table", rows->position[i]);
   if ((y = mod__output_like(tape, x, x->dim[1], x, NULL, NULL, mod__rope_backward)) == NULL) return NULL;
   y->arg[0] = rows;
   y->arg[1] = table;
   mod__run_rows(tape, mod__rope_forward, y, 4);
   return y;
}

/* --- attention: o_i = sum_j p_ij v_j, p_ij = softmax over the visible keys j of s_ij = q_i . k_j / sqrt(head_dim) ---
   Within a sequence; causal: j is visible iff position_j <= position_i. A strip of query rows at a time against all
   their keys; T x T is never stored. A key that a row does not see is never multiplied into it (a NaN in the future
   stays there): what a group of rows all see is one product, what is left follows row by row.
   With D_i = do_i . o_i, recomputing p from the saved largest score and 1 / sum:
   ds_ij = p_ij (do_i . v_j - D_i) / sqrt(head_dim);  dq_i += ds_ij k_j;  dk_j += ds_ij q_i;  dv_j += p_ij do_i.
   One task is a sequence and a key/value head, with all query heads that share it: threads never share an output. */

enum { MOD__STRIP = 24, MOD__GROUP = 6 }; /* rows */

typedef struct mod__attention {
   const mod__kernels *use;
   int hd, h0, h1, q0, q1, n_keys;                 /* query heads h0 .. h1-1, query rows q0 .. q1-1 */
   size_t n_heads, q_width, kv_width, kv, s_row;  /* kv: the first key's place; s_row: numbers in a row of scores */
   mod_real scale;
   int *visible;                  /* [q1 - q0] keys that each query row sees: the first ones */
   mod_real *s, *dp;              /* [MOD__STRIP, s_row] scores, and their gradients */
   mod_real *kt, *vt, *kv_panels; /* k and v transposed; forward v, for P V, backward k, for dS K: all in panels */
   mod_real *q_panels, *do_panels; /* q and do of a strip in panels, for dS^T q and P^T do */
} mod__attention;

MOD__FN mod_real *mod__piece(mod_arena *arena, size_t rows, size_t cols, int *fits)
{
   *fits = *fits && mod__mul(&cols, cols, sizeof(mod_real));
   return (mod_real *)mod__push(arena, rows, cols, fits);
}

/* Scratch of one task, in one walk: with base NULL it only counts. (size_t)-1: more than there is. */
MOD__FN size_t mod__attention_layout(mod__attention *a, unsigned char *base, const mod_rows *q_rows,
                                     const mod_rows *kv_rows, int hd, int backward)
{
   int q_max = q_rows->length_max, k_max = kv_rows->length_max; /* of a sequence */
   size_t rows = (size_t)mod__min(q_max, MOD__STRIP), wide = mod__whole(hd), keys = mod__whole(k_max), d = (size_t)hd;
   int fits = 1;
   mod_arena arena = {base, (size_t)-1, 0, 0};
   a->s_row = keys + MOD__PANEL; /* no power of two: a column in more than one set of the cache */
   a->s = mod__piece(&arena, rows, a->s_row, &fits);
   a->kt = mod__piece(&arena, d, keys, &fits);
   a->kv_panels = mod__piece(&arena, (size_t)k_max, wide, &fits);
   if (backward) {
      a->dp = mod__piece(&arena, rows, a->s_row, &fits);
      a->vt = mod__piece(&arena, d, keys, &fits);
      a->q_panels = mod__piece(&arena, rows, wide, &fits);
      a->do_panels = mod__piece(&arena, rows, wide, &fits);
   }
   a->visible = (int *)mod__push(&arena, (size_t)q_max, sizeof(int), &fits);
   return fits ? arena.used : (size_t)-1;
}

MOD__FN mod__attention mod__attention_task(const mod_tensor *y, int task, mod__range r, int backward)
{
   const mod_rows *q_rows = (const mod_rows *)y->arg[0], *kv_rows = (const mod_rows *)y->arg[1];
   int n_kv_heads = y->option[1], sequence = task / n_kv_heads, group = task % n_kv_heads, i, n = 0;
   const mod_tensor *k = y->in[1], *v = y->in[2];
   const size_t panel = (size_t)r.use->panel;
   mod__attention a;
   memset(&a, 0, sizeof a);
   a.use = r.use;
   a.n_heads = (size_t)y->option[0];
   a.hd = mod__cols(y) / y->option[0];
   a.h0 = group * (y->option[0] / n_kv_heads);
   a.h1 = a.h0 + y->option[0] / n_kv_heads;
   a.q0 = q_rows->start[sequence];
   a.q1 = q_rows->start[sequence + 1];
   a.n_keys = kv_rows->start[sequence + 1] - kv_rows->start[sequence];
   a.q_width = (size_t)mod__cols(y);
   a.kv_width = (size_t)mod__cols(k);
   a.kv = (size_t)kv_rows->start[sequence] * a.kv_width + (size_t)(group * a.hd);
   a.scale = 1 / mod__sqrt((mod_real)a.hd);
   mod__attention_layout(&a, (unsigned char *)r.scratch, q_rows, kv_rows, a.hd, backward);
   for (i = a.q0; i < a.q1; ++i) {
      const int *position = kv_rows->position + kv_rows->start[sequence];
      while (n < a.n_keys && (y->option[2] == MOD_MASK_FULL || position[n] <= q_rows->position[i])) ++n;
      a.visible[i - a.q0] = n;
   }
   if (a.q0 == a.q1) return a;
   mod__to_panels(a.kt, panel, k->data + a.kv, 1, a.kv_width, a.hd, a.n_keys);
   if (backward) mod__to_panels(a.vt, panel, v->data + a.kv, 1, a.kv_width, a.hd, a.n_keys);
   mod__to_panels(a.kv_panels, panel, (backward ? k : v)->data + a.kv, a.kv_width, 1, a.n_keys, a.hd);
   return a;
}

/* C[m, n] (+)= A B; panels: those of a matrix of `depth` rows, of which the rows first .. first + k - 1 are B */
MOD__FN void mod__times(const mod__attention *a, mod_real *c, size_t c_row, const mod_real *x, size_t x_row,
                        size_t x_col, const mod_real *panels, int depth, int first, int m, int n, int k, int accumulate)
{
   const size_t panel = (size_t)a->use->panel;
   const mod__product p = {c, x, panels + (size_t)first * panel, c_row, x_row, x_col, panel, (size_t)depth * panel,
                           m, n, k, accumulate};
   if (m > 0) a->use->multiply(&p);
}

/* out_i (+)= sum over the keys j that row i sees of s_ij x_j, x in panels, for `rows` rows of a strip */
MOD__FN void mod__gather_keys(const mod__attention *a, mod_real *out, const mod_real *s, const int *visible, int rows,
                              int accumulate)
{
   int i, g;
   for (g = 0; g < rows; g += MOD__GROUP) {
      int all = visible[g], last = mod__min(rows, g + MOD__GROUP);
      mod__times(a, out + (size_t)g * a->q_width, a->q_width, s + (size_t)g * a->s_row, a->s_row, 1, a->kv_panels,
                 a->n_keys, 0, last - g, a->hd, all, accumulate);
      for (i = g; i < last; ++i)
         if (visible[i] > all)
            mod__times(a, out + (size_t)i * a->q_width, 0, s + (size_t)i * a->s_row + all, 0, 1, a->kv_panels,
                       a->n_keys, all, 1, a->hd, visible[i] - all, 1);
   }
}

/* out_j += sum over the rows i that see key j of s_ij x_i, x in panels: first the keys that all rows of the strip see,
   then those that a group sees, then the others: for each key the rows ascend. */
MOD__FN void mod__spread_keys(const mod__attention *a, mod_real *out, const mod_real *s, const mod_real *panels,
                              const int *visible, int rows)
{
   int i, g, all = visible[0];
   mod__times(a, out, a->kv_width, s, 1, a->s_row, panels, rows, 0, all, a->hd, rows, 1);
   for (g = 0; g < rows; g += MOD__GROUP) {
      int some = visible[g], last = mod__min(rows, g + MOD__GROUP);
      mod__times(a, out + (size_t)all * a->kv_width, a->kv_width, s + (size_t)g * a->s_row + all, 1, a->s_row, panels,
                 rows, g, some - all, a->hd, last - g, 1);
      for (i = g; i < last; ++i)
         mod__times(a, out + (size_t)some * a->kv_width, a->kv_width, s + (size_t)i * a->s_row + some, 1, a->s_row,
                    panels, rows, i, visible[i] - some, a->hd, 1, 1);
   }
}

MOD__FN void mod__attention_forward(mod_tensor *y, mod__range r)
{
   int task, h, i0, i, c;
   for (task = r.lo; task < r.hi; ++task) {
      mod__attention a = mod__attention_task(y, task, r, 0);
      for (h = a.h0; h < a.h1; ++h)
         for (i0 = a.q0; i0 < a.q1; i0 += MOD__STRIP) {
            int rows = mod__min(a.q1 - i0, MOD__STRIP), *visible = a.visible + (i0 - a.q0);
            size_t at = (size_t)i0 * a.q_width + (size_t)(h * a.hd);
            mod_real *saved = (mod_real *)y->saved + 2 * ((size_t)i0 * a.n_heads + (size_t)h);
            mod_real *s, *o;
            mod__times(&a, a.s, a.s_row, y->in[0]->data + at, a.q_width, 1, a.kt, a.hd, 0, rows, visible[rows - 1],
                       a.hd, 0);
            for (i = 0, s = a.s; i < rows; ++i, s += a.s_row, saved += 2 * a.n_heads) {
               if (!visible[i]) continue;
               saved[0] = a.use->largest(s, (size_t)visible[i]);
               saved[1] = 1 / a.use->exp_row(s, s, (size_t)visible[i], saved[0], a.scale);
            }
            mod__gather_keys(&a, y->data + at, a.s, visible, rows, 0);
            saved -= 2 * a.n_heads * (size_t)rows;
            for (i = 0, o = y->data + at; i < rows; ++i, o += a.q_width, saved += 2 * a.n_heads)
               for (c = 0; c < a.hd && visible[i]; ++c) o[c] *= saved[1];
         }
   }
}

MOD__FN void mod__attention_dqkv(mod_tensor *y, mod__range r)
{
   mod_tensor *Q = y->in[0], *K = y->in[1], *V = y->in[2];
   const size_t panel = (size_t)r.use->panel;
   int task, h, i0, i, j;
   for (task = r.lo; task < r.hi; ++task) {
      mod__attention a = mod__attention_task(y, task, r, 1);
      for (h = a.h0; h < a.h1; ++h)
         for (i0 = a.q0; i0 < a.q1; i0 += MOD__STRIP) {
            int rows = mod__min(a.q1 - i0, MOD__STRIP), *visible = a.visible + (i0 - a.q0), most = visible[rows - 1];
            size_t at = (size_t)i0 * a.q_width + (size_t)(h * a.hd);
            const mod_real *q = Q->data + at, *dout = y->grad + at, *o = y->data + at;
            const mod_real *saved = (mod_real *)y->saved + 2 * ((size_t)i0 * a.n_heads + (size_t)h);
            mod__times(&a, a.s, a.s_row, q, a.q_width, 1, a.kt, a.hd, 0, rows, most, a.hd, 0);
            mod__times(&a, a.dp, a.s_row, dout, a.q_width, 1, a.vt, a.hd, 0, rows, most, a.hd, 0);
            for (i = 0; i < rows; ++i, saved += 2 * a.n_heads) {
               mod_real *p = a.s + (size_t)i * a.s_row, *ds = a.dp + (size_t)i * a.s_row, D;
               if (!visible[i]) continue;
               D = a.use->dot(dout + (size_t)i * a.q_width, o + (size_t)i * a.q_width, (size_t)a.hd);
               a.use->exp_row(p, p, (size_t)visible[i], saved[0], a.scale);
               for (j = 0; j < visible[i]; ++j) {
                  p[j] *= saved[1];
                  ds[j] = p[j] * (ds[j] - D) * a.scale;
               }
            }
            mod__to_panels(a.q_panels, panel, q, a.q_width, 1, rows, a.hd);
            mod__to_panels(a.do_panels, panel, dout, a.q_width, 1, rows, a.hd);
            if (K->grad) mod__spread_keys(&a, K->grad + a.kv, a.dp, a.q_panels, visible, rows);
            if (V->grad) mod__spread_keys(&a, V->grad + a.kv, a.s, a.do_panels, visible, rows);
            if (Q->grad) mod__gather_keys(&a, Q->grad + at, a.dp, visible, rows, 1);
         }
   }
}

/* About the FLOPs of one task: a sequence and a group of heads that share keys. */
MOD__FN double mod__attention_work(const mod_tensor *y)
{
   const mod_rows *q = (const mod_rows *)y->arg[0], *kv = (const mod_rows *)y->arg[1];
   double n = q->n_seqs;
   return n > 0 ? 4.0 * mod__cols(y) / y->option[1] * (q->n / n) * (kv->n / n) : 0;
}

MOD__FN void mod__attention_backward(mod_tape *t, mod_tensor *y)
{
   const mod_rows *q_rows = (const mod_rows *)y->arg[0], *kv_rows = (const mod_rows *)y->arg[1];
   mod__attention a;
   mod__run(t, mod__attention_dqkv, y, kv_rows->n_seqs * y->option[1], 2.5 * mod__attention_work(y),
            mod__attention_layout(&a, NULL, q_rows, kv_rows, mod__cols(y) / y->option[0], 1));
}

/* Pairs of a query and a key that it sees. */
MOD__FN int64_t mod__pairs(const mod_rows *q_rows, const mod_rows *kv_rows, int mask)
{
   int64_t pairs = 0;
   int s, i;
   for (s = 0; s < q_rows->n_seqs; ++s) {
      int j = kv_rows->start[s];
      for (i = q_rows->start[s]; i < q_rows->start[s + 1]; ++i) {
         while (j < kv_rows->start[s + 1] && (mask == MOD_MASK_FULL || kv_rows->position[j] <= q_rows->position[i]))
            ++j;
         pairs += j - kv_rows->start[s];
      }
   }
   return pairs;
}

MODDEF mod_tensor *mod_attention(mod_tape *t, mod_tensor *q, mod_tensor *k, mod_tensor *v, const mod_rows *q_rows,
                                 const mod_rows *kv_rows, int n_heads, int n_kv_heads, mod_mask mask)
{
   mod_tensor *y;
   mod__attention a;
   size_t scratch;
   int hd, tasks;
   if (!mod__ready(t, q, k, v)) return NULL;
   if (!q_rows || !kv_rows) return mod__refuse(t, MOD_RESULT_ARG, "attention: q_rows or kv_rows is NULL", -1);
   if (n_heads < 1 || n_kv_heads < 1 || n_heads % n_kv_heads || (mask != MOD_MASK_CAUSAL && mask != MOD_MASK_FULL))
      return mod__refuse(t, MOD_RESULT_ARG, "attention: n_kv_heads must divide n_heads, mask be a mod_mask", -1);
   if (q->n_dim != 2 || k->n_dim != 2 || v->n_dim != 2 || !mod__fits(t, q, q_rows) || !mod__fits(t, k, kv_rows) ||
       !mod__fits(t, v, kv_rows) || q->dim[1] % n_heads || k->dim[1] != q->dim[1] / n_heads * n_kv_heads ||
       v->dim[1] != k->dim[1] || q->dim[1] == 0 || q_rows->n_seqs != kv_rows->n_seqs ||
       kv_rows->n_seqs > INT_MAX / n_kv_heads)
      return mod__shape_error(t, "attention: q must be [q_rows, n_heads * hd] and k, v [kv_rows, n_kv_heads * hd]");
   hd = q->dim[1] / n_heads;
   if ((y = mod__output_like(t, q, q->dim[1], q, k, v, mod__attention_backward)) == NULL) return NULL;
   if (!mod__take(t, (size_t)(y->n_max ? y->n_max : y->dim[0]) * (size_t)n_heads, 2 * sizeof(mod_real), &y->saved))
      return NULL;
   y->arg[0] = q_rows;
   y->arg[1] = kv_rows;
   y->option[0] = n_heads;
   y->option[1] = n_kv_heads;
   y->option[2] = (int)mask;
   tasks = kv_rows->n_seqs * n_kv_heads;
   mod__backward_scratch(t, y, mod__attention_layout(&a, NULL, q_rows, kv_rows, hd, 1), tasks);
   scratch = mod__attention_layout(&a, NULL, q_rows, kv_rows, hd, 0);
   if (!mod__scratch(t, scratch, tasks)) return NULL;
   if (t->desc.measure) return y;
   mod__run(t, mod__attention_forward, y, tasks, mod__attention_work(y), scratch);
   t->flops += 4.0 * q->dim[1] * (double)mod__pairs(q_rows, kv_rows, (int)mask);
   return y;
}

/* --- rows: whose they are, and which of them a block takes --- */

MOD__FN mod_rows *mod__no_rows(mod_tape *t, mod_result code, const char *message, int64_t where)
{
   mod_tape_fail(t, code, message, where);
   return NULL;
}

MOD__FN mod_rows *mod__rows_new(mod_tape *t, int n_seqs, int n_max, int length_max, int ragged, const mod_rows *parent)
{
   mod_rows *r = (mod_rows *)mod__describe(t, sizeof *r);
   if (!r) return NULL;
   r->n_seqs = n_seqs;
   r->n = r->n_max = n_max;
   r->length_max = length_max;
   r->ragged = ragged;
   r->parent = parent;
   r->start = mod__ints(t, (size_t)n_seqs + 1);
   r->position = mod__ints(t, (size_t)n_max);
   if (parent) r->index = mod__ints(t, (size_t)n_max);
   return t->error.code == MOD_RESULT_OK ? r : NULL;
}

MODDEF mod_rows *mod_rows_make(mod_tape *tape, int n_seqs, int length, const int *lengths)
{
   mod_rows *r;
   int s, i, n = 0;
   if (!tape || tape->error.code != MOD_RESULT_OK) return NULL;
   if (n_seqs < 1 || length < 1 || n_seqs > MOD__MAX_ROWS / length)
      return mod__no_rows(tape, MOD_RESULT_ARG, "rows: n_seqs, length >= 1 and a product of at most 2^24", -1);
   for (s = 0; lengths && s < n_seqs; ++s)
      if (lengths[s] < 0 || lengths[s] > length)
         return mod__no_rows(tape, MOD_RESULT_ARG, "rows: a sequence's length is negative or above the batch's", s);
   r = mod__rows_new(tape, n_seqs, n_seqs * length, length, lengths != NULL, NULL);
   if (!r || tape->desc.measure) return r;
   for (s = 0; s < n_seqs; ++s) {
      r->start[s] = n;
      for (i = 0; i < (lengths ? lengths[s] : length); ++i) r->position[n++] = i;
   }
   r->start[n_seqs] = r->n = n;
   return r;
}

/* The rows of each sequence that a rule picks. share > 0: the best ones, so many as mod__share_of says. Else those with
   a score above theta, of which there are never more than k_max. */
MOD__FN mod_rows *mod__rows_select(mod_tape *t, const mod_rows *rows, const mod_tensor *score, double share, int up,
                                   double theta, int k_max)
{
   mod_rows *r;
   mod_error e;
   int s, j, count, n_max, best = share > 0;
   if (!mod__ready(t, score, score, score)) return NULL;
   if (!rows) return mod__no_rows(t, MOD_RESULT_ARG, "rows is NULL", -1);
   if (!mod__fits(t, score, rows) || mod__cols(score) != 1 || score->n_dim != 2)
      return mod__no_rows(t, MOD_RESULT_SHAPE, "rows: score must be [rows, 1]", -1);
   k_max = best ? mod__share_of(rows->length_max, share, up) : mod__min(k_max, rows->length_max);
   n_max = mod__min(rows->n_max, k_max * rows->n_seqs);
   r = mod__rows_new(t, rows->n_seqs, n_max, k_max, rows->ragged || !best, rows);
   if (!r || t->desc.measure) return r;
   r->n = 0;
   for (s = 0; s < rows->n_seqs; ++s) {
      int first = rows->start[s], n = rows->start[s + 1] - first, *kept = r->index + r->n;
      r->start[s] = r->n;
      count = best ? mod__share_of(n, share, up) : 0;
      if (best ? mod_route_topk(score->data + first, n, count, kept, &e)
               : mod_route_threshold(score->data + first, n, theta, kept, &count, &e)) {
         mod_tape_fail(t, e.code, e.message, e.where < 0 ? -1 : rows->position[first + e.where]);
         return NULL;
      }
      for (j = 0; j < count; ++j) {
         kept[j] += first;
         r->position[r->n++] = rows->position[kept[j]];
      }
   }
   r->start[rows->n_seqs] = r->n;
   return r;
}

MODDEF mod_rows *mod_rows_topk(mod_tape *tape, const mod_rows *rows, mod_tensor *score, double capacity)
{
   if (!(capacity > 0 && capacity <= 1))
      return mod__no_rows(tape, MOD_RESULT_ARG, "rows: capacity must be in (0, 1]", -1);
   return mod__rows_select(tape, rows, score, capacity, 0, 0, 0);
}

MODDEF mod_rows *mod_rows_threshold(mod_tape *tape, const mod_rows *rows, mod_tensor *score, double theta)
{
   return mod__rows_select(tape, rows, score, 0, 0, theta, INT_MAX);
}

/* The rows that are not in `kept`. by_length: how many are kept of a sequence follows from its length n, and of n + 1
   rows no more than one is kept beyond that: then most are left of the longest. */
MOD__FN mod_rows *mod__rows_others(mod_tape *t, const mod_rows *rows, const mod_rows *kept, int by_length)
{
   mod_rows *r;
   int s, i, j = 0, length = rows->length_max - (by_length ? kept->length_max : 0);
   r = mod__rows_new(t, rows->n_seqs, mod__min(rows->n_max, length * rows->n_seqs), length, rows->ragged || !by_length,
                     rows);
   if (!r || t->desc.measure) return r;
   r->n = 0;
   for (s = 0; s < rows->n_seqs; ++s) {
      r->start[s] = r->n;
      for (i = rows->start[s]; i < rows->start[s + 1] && kept != rows; ++i) {
         if (j < kept->n && kept->index[j] == i) {
            ++j;
            continue;
         }
         r->index[r->n] = i;
         r->position[r->n++] = rows->position[i];
      }
   }
   r->start[rows->n_seqs] = r->n;
   return r;
}

MODDEF mod_rows *mod_rows_others(mod_tape *tape, const mod_rows *rows, const mod_rows *kept)
{
   if (!tape || tape->error.code != MOD_RESULT_OK) return NULL;
   if (!rows || !kept) return mod__no_rows(tape, MOD_RESULT_ARG, "rows or kept is NULL", -1);
   if (kept != rows && kept->parent != rows)
      return mod__no_rows(tape, MOD_RESULT_SHAPE, "kept is no selection of rows", -1);
   return mod__rows_others(tape, rows, kept, !rows->ragged && !kept->ragged);
}

MODDEF int mod_rows_choose(mod_tape *t, const mod_rows *rows, mod_tensor *score, int choices, int n_experts, int slots,
                           int *used, int *chosen, mod_rows **out)
{
   mod_error err;
   int paths, length, s, e, i;
   size_t mark, n_choices;
   int *path, *slot, *all_paths, *all_slots, *room, *held;
   if (!mod__ready(t, score, score, score)) return 0;
   if (!rows || !out) return mod__no_rows(t, MOD_RESULT_ARG, "choose: rows or out is NULL", -1), 0;
   if (!mod__fits(t, score, rows) || score->n_dim != 2)
      return mod__no_rows(t, MOD_RESULT_SHAPE, "choose: score must be [rows, paths]", -1), 0;
   paths = mod__cols(score);
   if (n_experts < 1 || n_experts > paths || slots < 0 || choices < 1 || choices > paths || (used && rows->n_seqs != 1))
      return mod__no_rows(t, MOD_RESULT_ARG, "choose: 1 to `paths` experts and choices, slots >= 0, `used` for one "
                          "sequence only", -1), 0;
   length = mod__min(rows->length_max, slots);
   for (e = 0; e < n_experts; ++e) {
      size_t described = t->stub.used;
      if (!(out[e] = mod__rows_new(t, rows->n_seqs, mod__min(rows->n_max, length * rows->n_seqs), length, 1, rows)))
         return 0;
      if (!t->desc.measure || e == 0) continue;
      out[e] = out[0]; /* all alike: one description will do */
      t->stub.used = described;
   }
   mark = t->arena.used;
   n_choices = (size_t)rows->length_max * (size_t)choices;
   all_paths = mod__ints(t, n_choices);
   all_slots = mod__ints(t, n_choices);
   room = mod__ints(t, (size_t)paths);
   held = mod__ints(t, (size_t)paths);
   t->arena.used = mark; /* scratch: nothing is taken before the end */
   if (t->error.code != MOD_RESULT_OK) return 0;
   if (t->desc.measure) return 1;
   if (used) held = used;
   for (e = 0; e < paths; ++e) room[e] = e < n_experts ? slots : -1;
   for (e = 0; e < n_experts; ++e) out[e]->n = 0;
   if (chosen) memset(chosen, 0, (size_t)rows->n_seqs * (size_t)paths * sizeof *chosen);
   for (s = 0; s < rows->n_seqs; ++s) {
      int first = rows->start[s], n = rows->start[s + 1] - first;
      path = all_paths;
      slot = all_slots;
      if (!used) memset(held, 0, (size_t)paths * sizeof *held);
      for (e = 0; e < n_experts; ++e) out[e]->start[s] = out[e]->n;
      if (mod_route_choose(score->data + (size_t)first * (size_t)paths, n, paths, choices, room, held, path, slot,
                           &err))
         return mod_tape_fail(t, err.code, err.message, err.where < 0 ? -1 : rows->position[first + err.where]), 0;
      for (i = first; i < first + n; ++i)
         for (e = 0; e < choices; ++e, ++path, ++slot) {
            mod_rows *to = *path < n_experts ? out[*path] : NULL;
            if (chosen) ++chosen[(size_t)s * (size_t)paths + (size_t)*path];
            if (!to || *slot < 0) continue;
            to->position[to->n] = rows->position[i];
            to->index[to->n++] = i;
         }
   }
   for (e = 0; e < n_experts; ++e) out[e]->start[rows->n_seqs] = out[e]->n;
   return 1;
}

MODDEF unsigned char *mod_rows_mask(mod_tape *tape, const mod_rows *rows, const mod_rows *kept)
{
   void *mask;
   int j;
   if (!tape || tape->error.code != MOD_RESULT_OK) return NULL;
   if (!rows || !kept)
      return mod_tape_fail(tape, MOD_RESULT_ARG, "rows or kept is NULL", -1), (unsigned char *)NULL;
   if (kept != rows && kept->parent != rows)
      return mod_tape_fail(tape, MOD_RESULT_SHAPE, "kept is no selection of rows", -1), (unsigned char *)NULL;
   if (!mod__take(tape, (size_t)rows->n_max, 1, &mask) || tape->desc.measure) return NULL;
   memset(mask, kept == rows, (size_t)rows->n);
   for (j = 0; kept != rows && j < kept->n; ++j) ((unsigned char *)mask)[kept->index[j]] = 1;
   return (unsigned char *)mask;
}

/* --- gather: y_j = x_(index j); dx_(index j) += dy_j. Without an index: y is x, with a gradient of its own, so that a
   block which takes every row adds up gradients in the same order as one that gathers them all. --- */

MOD__FN void mod__gather_forward(mod_tensor *y, mod__range r)
{
   const int *index = ((const mod_rows *)y->arg[0])->index;
   size_t n = y->dim[0] ? mod__count(y) / (size_t)y->dim[0] : 0;
   int j;
   for (j = r.lo; j < r.hi; ++j)
      memcpy(y->data + (size_t)j * n, y->in[0]->data + (size_t)index[j] * n, n * sizeof(mod_real));
}

MOD__FN void mod__gather_dx(mod_tensor *y, mod__range r)
{
   const int *index = ((const mod_rows *)y->arg[0])->index;
   size_t n = y->dim[0] ? mod__count(y) / (size_t)y->dim[0] : 0;
   int j;
   for (j = r.lo; j < r.hi; ++j)
      mod__axpy(y->in[0]->grad + (size_t)(index ? index[j] : j) * n, 1, y->grad + (size_t)j * n, n);
}

MOD__FN void mod__gather_backward(mod_tape *t, mod_tensor *y)
{
   mod__run(t, mod__gather_dx, y, y->dim[0], mod__cols(y), 0);
}

MODDEF mod_tensor *mod_gather(mod_tape *tape, mod_tensor *x, const mod_rows *kept)
{
   mod_tensor *y;
   int dim[MOD_TENSOR_MAX_DIM];
   if (!mod__ready(tape, x, x, x)) return NULL;
   if (!kept) return mod__refuse(tape, MOD_RESULT_ARG, "gather: rows is NULL", -1);
   if (!kept->parent) {
      if (!mod__fits(tape, x, kept)) return mod__shape_error(tape, "gather: x must have one row for each of the rows");
      y = mod__alias(tape, x, x->n_dim, x->dim, kept->ragged ? kept->n_max : 0);
      if (!y || !mod__record(tape, y, x, NULL, NULL, mod__gather_backward)) return NULL;
      y->arg[0] = kept;
      return y;
   }
   if (!mod__fits(tape, x, kept->parent))
      return mod__shape_error(tape, "gather: x must have all the rows that were selected from");
   memcpy(dim, x->dim, sizeof dim);
   dim[0] = kept->n;
   y = mod__output(tape, x->n_dim, dim, kept->ragged ? kept->n_max : 0, x, NULL, NULL, mod__gather_backward);
   if (!y) return NULL;
   y->arg[0] = kept;
   mod__run(tape, mod__gather_forward, y, kept->n, mod__cols(y), 0);
   return y;
}

/* --- scatter-add: y = x, then y_(index j) += w_j f_j (the paper's equation 1) ---
   dx += dy;  df_j += w_j dy_(index j);  dw_j += <dy_(index j), f_j>. The rows of one selection never collide. */

MOD__FN void mod__scatter_forward(mod_tensor *y, mod__range r)
{
   const int *index = ((const mod_rows *)y->arg[0])->index;
   size_t n = (size_t)mod__cols(y), c;
   int j;
   for (j = r.lo; j < r.hi; ++j) {
      const mod_real *f = y->in[1]->data + (size_t)j * n;
      mod_real *out = y->data + (size_t)(index ? index[j] : j) * n, w = y->in[2] ? y->in[2]->data[j] : 1;
      for (c = 0; c < n; ++c) out[c] += w * f[c];
   }
}

MOD__FN void mod__scatter_dx(mod_tensor *y, mod__range r)
{
   size_t n = (size_t)mod__cols(y);
   mod__axpy(y->in[0]->grad + (size_t)r.lo * n, 1, y->grad + (size_t)r.lo * n, (size_t)(r.hi - r.lo) * n);
}

MOD__FN void mod__scatter_df(mod_tensor *y, mod__range r)
{
   mod_tensor *f = y->in[1], *w = y->in[2];
   const int *index = ((const mod_rows *)y->arg[0])->index;
   size_t n = (size_t)mod__cols(y);
   int j;
   for (j = r.lo; j < r.hi; ++j) {
      const mod_real *dy = y->grad + (size_t)(index ? index[j] : j) * n;
      if (f->grad) mod__axpy(f->grad + (size_t)j * n, w ? w->data[j] : 1, dy, n);
      if (w && w->grad) w->grad[j] += r.use->dot(dy, f->data + (size_t)j * n, n);
   }
}

MOD__FN void mod__scatter_backward(mod_tape *t, mod_tensor *y)
{
   if (y->in[0] && y->in[0]->grad) mod__run_rows(t, mod__scatter_dx, y, 1);
   mod__run(t, mod__scatter_df, y, y->in[1]->dim[0], 4.0 * mod__cols(y), 0);
}

MODDEF mod_tensor *mod_scatter_add(mod_tape *tape, mod_tensor *x, mod_tensor *delta, mod_tensor *weight,
                                   const mod_rows *kept)
{
   mod_tensor *y;
   if (!mod__ready(tape, x, delta, x)) return NULL;
   if (!kept) return mod__refuse(tape, MOD_RESULT_ARG, "scatter_add: rows is NULL", -1);
   if (x->n_dim != 2 || delta->n_dim != 2 || delta->dim[1] != x->dim[1] || !mod__fits(tape, delta, kept) ||
       (weight && (weight->n_dim != 2 || weight->dim[1] != 1 || !mod__fits(tape, weight, kept))) ||
       !mod__fits(tape, x, kept->parent ? kept->parent : kept))
      return mod__shape_error(tape, "scatter_add: x must be [rows, d], delta [kept rows, d] and weight [kept rows, 1]");
   if ((y = mod__output_like(tape, x, x->dim[1], x, delta, weight, mod__scatter_backward)) == NULL) return NULL;
   y->arg[0] = kept;
   if (tape->desc.measure) return y;
   if (mod__count(x)) memcpy(y->data, x->data, mod__count(x) * sizeof(mod_real));
   mod__run(tape, mod__scatter_forward, y, kept->n, x->dim[1], 0);
   return y;
}

/* Numbers with no gradient, like x but with `cols` columns; 0 unless measuring. */
MOD__FN mod_tensor *mod__zeros(mod_tape *t, const mod_tensor *x, int cols)
{
   mod_tensor *y = x ? mod__output_like(t, x, cols, NULL, NULL, NULL, NULL) : NULL;
   if (y && !t->desc.measure) memset(y->data, 0, mod__count(y) * sizeof(mod_real));
   return y;
}

/* Scatter-add into y itself, which began as mod__zeros and which nothing else has read: it saves a copy each time. */
MOD__FN mod_tensor *mod__scatter_into(mod_tape *t, mod_tensor *y, mod_tensor *delta, mod_tensor *weight,
                                      const mod_rows *kept)
{
   mod_tensor *sum;
   if (!mod__ready(t, y, delta, weight) || (sum = mod__alias(t, y, y->n_dim, y->dim, y->n_max)) == NULL) return NULL;
   sum->grad = y->grad;
   if (!mod__record(t, sum, NULL, delta, weight, mod__scatter_backward)) return NULL;
   sum->arg[0] = kept;
   mod__run(t, mod__scatter_forward, sum, kept->n, sum->dim[1], 0);
   return sum;
}

/* --- stop-gradient: y = x, dx += 0 --- */

MODDEF mod_tensor *mod_stop_grad(mod_tape *tape, mod_tensor *x)
{
   return mod__ready(tape, x, x, x) ? mod__alias(tape, x, x->n_dim, x->dim, x->n_max) : NULL;
}

/* --- dropout: y = x keep / (1 - p), keep in {0, 1} drawn again in the backward pass; dx += dy keep / (1 - p) --- */

typedef struct mod__dropout_key {
   uint64_t seed, stream, first_id;
} mod__dropout_key;

/* to (+)= from keep / (1 - p) */
MOD__FN void mod__drop(const mod_tensor *y, const mod_real *from, mod_real *to, mod__range r, int accumulate)
{
   const mod_rows *rows = (const mod_rows *)y->arg[0];
   const mod__dropout_key *key = (const mod__dropout_key *)y->saved;
   mod_real scale = (mod_real)(1 / (1 - y->value));
   size_t n = (size_t)mod__cols(y), j;
   int i, s = 0;
   for (i = r.lo; i < r.hi; ++i) {
      uint64_t stream, first;
      while (rows->start[s + 1] <= i) ++s;
      stream = mod_random_substream(key->stream, key->first_id + (uint64_t)s);
      first = (uint64_t)rows->position[i] * n;
      for (j = 0; j < n; ++j) {
         size_t at = (size_t)i * n + j;
         mod_real kept = mod_random_uniform(key->seed, stream, first + j) < y->value ? 0 : from[at] * scale;
         to[at] = accumulate ? to[at] + kept : kept;
      }
   }
}

MOD__FN void mod__dropout_forward(mod_tensor *y, mod__range r) { mod__drop(y, y->in[0]->data, y->data, r, 0); }
MOD__FN void mod__dropout_dx(mod_tensor *y, mod__range r) { mod__drop(y, y->grad, y->in[0]->grad, r, 1); }
MOD__FN void mod__dropout_backward(mod_tape *t, mod_tensor *y) { mod__run_rows(t, mod__dropout_dx, y, 8); }

MODDEF mod_tensor *mod_dropout(mod_tape *tape, mod_tensor *x, const mod_rows *rows, double p, uint64_t seed,
                               uint64_t stream, uint64_t first_id)
{
   const mod__dropout_key key = {seed, stream, first_id};
   mod_tensor *y;
   if (!mod__ready(tape, x, x, x)) return NULL;
   if (!rows || !(p >= 0 && p < 1))
      return mod__refuse(tape, MOD_RESULT_ARG, "dropout: rows is NULL, or p is not in [0, 1)", -1);
   if (x->n_dim != 2 || !mod__fits(tape, x, rows)) return mod__shape_error(tape, "dropout: x must be [rows, d]");
   y = mod__output_like(tape, x, x->dim[1], x, NULL, NULL, mod__dropout_backward);
   if (!y || !mod__take(tape, 1, sizeof(mod__dropout_key), &y->saved)) return NULL;
   y->arg[0] = rows;
   y->value = p;
   if (tape->desc.measure) return y;
   *(mod__dropout_key *)y->saved = key;
   mod__run_rows(tape, mod__dropout_forward, y, 8);
   return y;
}

/* --- pool: y_s = sum of the n rows of sequence s / n, dx_i += dy_s / n; or its last row, whose dx += dy_s --- */

/* The rows of sequence s that count. Returns how many. */
MOD__FN int mod__pooled(const mod_tensor *y, int s, int *first)
{
   const mod_rows *rows = (const mod_rows *)y->arg[0];
   int n = rows->start[s + 1] - rows->start[s];
   *first = rows->start[s];
   if (y->option[0] == MOD_POOL_MEAN || n == 0) return n;
   *first = rows->start[s + 1] - 1;
   return 1;
}

MOD__FN void mod__pool_forward(mod_tensor *y, mod__range r)
{
   size_t d = (size_t)mod__cols(y), c;
   int s, i, n, first;
   for (s = r.lo; s < r.hi; ++s) {
      mod_real *out = y->data + (size_t)s * d;
      n = mod__pooled(y, s, &first);
      memset(out, 0, d * sizeof *out);
      for (i = first; i < first + n; ++i) mod__axpy(out, 1, y->in[0]->data + (size_t)i * d, d);
      for (c = 0; c < d && n > 1; ++c) out[c] /= (mod_real)n;
   }
}

MOD__FN void mod__pool_dx(mod_tensor *y, mod__range r)
{
   size_t d = (size_t)mod__cols(y);
   int s, i, n, first;
   for (s = r.lo; s < r.hi; ++s) {
      n = mod__pooled(y, s, &first);
      for (i = first; i < first + n; ++i)
         mod__axpy(y->in[0]->grad + (size_t)i * d, 1 / (mod_real)n, y->grad + (size_t)s * d, d);
   }
}

MOD__FN void mod__pool_backward(mod_tape *t, mod_tensor *y)
{
   mod__run_rows(t, mod__pool_dx, y, ((const mod_rows *)y->arg[0])->length_max);
}

MODDEF mod_tensor *mod_pool(mod_tape *tape, mod_tensor *x, const mod_rows *rows, mod_pool_kind kind)
{
   mod_tensor *y;
   int dim[2];
   if (!mod__ready(tape, x, x, x)) return NULL;
   if (!rows || (kind != MOD_POOL_MEAN && kind != MOD_POOL_LAST))
      return mod__refuse(tape, MOD_RESULT_ARG, "pool: rows is NULL, or kind no mod_pool_kind", -1);
   if (x->n_dim != 2 || !mod__fits(tape, x, rows)) return mod__shape_error(tape, "pool: x must be [rows, d]");
   dim[0] = rows->n_seqs;
   dim[1] = x->dim[1];
   if ((y = mod__output(tape, 2, dim, 0, x, NULL, NULL, mod__pool_backward)) == NULL) return NULL;
   y->arg[0] = rows;
   y->option[0] = (int)kind;
   mod__run_rows(tape, mod__pool_forward, y, rows->length_max);
   return y;
}

/* --- sum and mean of all elements: y = sum x / n; dx += dy / n --- */

MOD__FN void mod__sum_backward(mod_tape *t, mod_tensor *y)
{
   mod_real d = y->grad[0] * (mod_real)y->value;
   size_t i, n = mod__count(y->in[0]);
   (void)t;
   for (i = 0; i < n; ++i) y->in[0]->grad[i] += d;
}

MOD__FN mod_tensor *mod__sum_all(mod_tape *t, mod_tensor *x, int mean)
{
   mod_tensor *y;
   double sum = 0;
   size_t i, n;
   int dim = 1;
   if (!mod__ready(t, x, x, x)) return NULL;
   n = mod__count(x);
   if ((y = mod__output(t, 1, &dim, 0, x, NULL, NULL, mod__sum_backward)) == NULL) return NULL;
   y->value = mean ? 1.0 / (double)(n ? n : 1) : 1;
   if (t->desc.measure) return y;
   for (i = 0; i < n; ++i) sum += (double)x->data[i];
   y->data[0] = (mod_real)(mean ? sum / (double)(n ? n : 1) : sum);
   return y;
}

MODDEF mod_tensor *mod_sum(mod_tape *tape, mod_tensor *x) { return mod__sum_all(tape, x, 0); }
MODDEF mod_tensor *mod_mean(mod_tape *tape, mod_tensor *x) { return mod__sum_all(tape, x, 1); }

/* --- losses: y = sum over rows of l_i / count, in double, rows ascending; a row without a target has l_i = 0 ---
   cross-entropy: l_i = log(sum_j exp(x_ij - m_i)) - (x_i,target - m_i), m_i the largest of the row;
                        dx_ij += dy (p_ij - [j = target]) / count
   binary, from logits: l_i = max(x_i, 0) - x_i t_i + log(1 + exp(-|x_i|));
                        dx_i += dy (sigmoid(x_i) - t_i) / count
   Saved: l_i; for the cross-entropy also m_i and 1 / sum. */

MOD__FN void mod__cross_entropy_forward(mod_tensor *y, mod__range r)
{
   const int *target = (const int *)y->arg[0];
   size_t n = (size_t)mod__cols(y->in[0]);
   int i;
   for (i = r.lo; i < r.hi; ++i) {
      const mod_real *x = y->in[0]->data + (size_t)i * n;
      mod_real *saved = (mod_real *)y->saved + 3 * (size_t)i, sum;
      saved[0] = 0;
      if (target[i] < 0) continue;
      saved[1] = r.use->largest(x, n);
      sum = r.use->exp_row(NULL, x, n, saved[1], 1);
      saved[0] = mod__log(sum) - (x[target[i]] - saved[1]);
      saved[2] = 1 / sum;
   }
}

MOD__FN void mod__cross_entropy_dx(mod_tensor *y, mod__range r)
{
   const int *target = (const int *)y->arg[0];
   size_t n = (size_t)mod__cols(y->in[0]), j, q, part;
   mod_real d = y->grad[0] * (mod_real)(1 / *(const double *)y->arg[1]), p[64];
   int i;
   for (i = r.lo; i < r.hi; ++i) {
      const mod_real *x = y->in[0]->data + (size_t)i * n, *saved = (const mod_real *)y->saved + 3 * (size_t)i;
      mod_real *dx = y->in[0]->grad + (size_t)i * n;
      if (target[i] < 0) continue;
      for (j = 0; j < n; j += part) {
         part = n - j < 64 ? n - j : 64;
         r.use->exp_row(p, x + j, part, saved[1], 1);
         for (q = 0; q < part; ++q) p[q] *= saved[2];
         if ((size_t)target[i] - j < part) p[(size_t)target[i] - j] -= 1;
         for (q = 0; q < part; ++q) dx[j + q] += p[q] * d;
      }
   }
}

MOD__FN void mod__cross_entropy_backward(mod_tape *t, mod_tensor *y)
{
   mod__run(t, mod__cross_entropy_dx, y, y->in[0]->dim[0], 16.0 * mod__cols(y->in[0]), 0);
}

MOD__FN void mod__bce_forward(mod_tensor *y, mod__range r)
{
   const unsigned char *target = (const unsigned char *)y->arg[0];
   int i;
   for (i = r.lo; i < r.hi; ++i) {
      mod_real x = y->in[0]->data[i];
      ((mod_real *)y->saved)[i] = (x > 0 ? x : 0) - (target[i] ? x : 0) + mod__log(1 + mod__exp(-mod__fabs(x)));
   }
}

MOD__FN void mod__bce_dx(mod_tensor *y, mod__range r)
{
   const unsigned char *target = (const unsigned char *)y->arg[0];
   mod_real d = y->grad[0] * (mod_real)(1 / *(const double *)y->arg[1]);
   int i;
   for (i = r.lo; i < r.hi; ++i)
      y->in[0]->grad[i] += (mod__sigmoid(y->in[0]->data[i]) - (mod_real)target[i]) * d;
}

MOD__FN void mod__bce_backward(mod_tape *t, mod_tensor *y)
{
   mod__run(t, mod__bce_dx, y, (int)mod__count(y->in[0]), 16, 0);
}

/* The part that both losses share: room, the run over n rows, the sum. saved: numbers per row, l_i first. */
MOD__FN mod_tensor *mod__loss(mod_tape *t, mod_tensor *x, int n, size_t n_max, size_t saved, const void *target,
                              double count, mod__op_kernel forward, void (*backward)(mod_tape *, mod_tensor *))
{
   mod_tensor *y;
   double sum = 0;
   void *divisor;
   int i, dim = 1;
   if ((y = mod__output(t, 1, &dim, 0, x, NULL, NULL, backward)) == NULL ||
       !mod__take(t, n_max, saved * sizeof(mod_real), &y->saved) || !mod__take(t, 1, sizeof(double), &divisor))
      return NULL;
   y->arg[0] = target;
   y->arg[1] = divisor;
   if (t->desc.measure) return y;
   *(double *)divisor = count > 0 ? count : 1;
   mod__run(t, forward, y, n, 16.0 * (saved > 1 ? mod__cols(x) : 1), 0);
   for (i = 0; i < n; ++i) sum += (double)((const mod_real *)y->saved)[(size_t)i * saved];
   y->value = sum / *(double *)divisor;
   y->data[0] = (mod_real)y->value;
   return y;
}

MODDEF mod_tensor *mod_cross_entropy(mod_tape *tape, mod_tensor *logits, const int *targets, double count)
{
   int i, n, found = 0;
   if (!mod__ready(tape, logits, logits, logits)) return NULL;
   if (logits->n_dim != 2 || logits->dim[1] < 1)
      return mod__shape_error(tape, "cross_entropy: logits must be [rows, classes]");
   n = logits->dim[0];
   if (!(count >= 0) || !mod__finite(count))
      return mod__refuse(tape, MOD_RESULT_ARG, "cross_entropy: count must be at least 0", -1);
   if (!tape->desc.measure) {
      if (n > 0 && !targets) return mod__refuse(tape, MOD_RESULT_ARG, "cross_entropy: targets is NULL", -1);
      for (i = 0; i < n; ++i) {
         if (targets[i] < -1 || targets[i] >= logits->dim[1])
            return mod__refuse(tape, MOD_RESULT_RANGE, "cross_entropy: a target is no class, and not -1", i);
         found += targets[i] >= 0;
      }
   }
   return mod__loss(tape, logits, n, (size_t)(logits->n_max ? logits->n_max : n), 3, targets,
                    count > 0 ? count : found, mod__cross_entropy_forward, mod__cross_entropy_backward);
}

MODDEF mod_tensor *mod_bce_logits(mod_tape *tape, mod_tensor *logits, const unsigned char *targets, double count)
{
   size_t n, i;
   if (!mod__ready(tape, logits, logits, logits)) return NULL;
   n = mod__count(logits);
   if (n > INT_MAX) return mod__shape_error(tape, "bce_logits: too many logits");
   if (!(count >= 0) || !mod__finite(count))
      return mod__refuse(tape, MOD_RESULT_ARG, "bce_logits: count must be at least 0", -1);
   if (!tape->desc.measure && n > 0 && !targets)
      return mod__refuse(tape, MOD_RESULT_ARG, "bce_logits: targets is NULL", -1);
   for (i = 0; i < n && !tape->desc.measure; ++i)
      if (targets[i] > 1)
         return mod__refuse(tape, MOD_RESULT_RANGE, "bce_logits: a target is neither 0 nor 1", (int64_t)i);
   return mod__loss(tape, logits, (int)n, mod__reserved(logits), 1, targets, count > 0 ? count : (double)n,
                    mod__bce_forward, mod__bce_backward);
}

/* --- reshape: the same elements; nothing to do backward --- */

MODDEF mod_tensor *mod_reshape(mod_tape *tape, mod_tensor *x, int n_dim, const int *dim)
{
   mod_tensor *y;
   if (!mod__ready(tape, x, x, x)) return NULL;
   if (x->n_max && (n_dim < 2 || !dim || dim[0] != x->dim[0]))
      return mod__shape_error(tape, "reshape: rows that depend on the data stay rows");
   if ((y = mod__alias(tape, x, n_dim, dim, x->n_max)) == NULL) return NULL;
   if (mod__reserved(y) != mod__reserved(x)) return mod__shape_error(tape, "reshape: the number of elements differs");
   y->grad = x->grad;
   return y;
}

/* --- transpose, slice, concat: y is x walked by other strides; the gradient walks back ---
   Element (i0, i1, i2, i3) is at first + i0 s0 + i1 s1 + i2 s2 + i3 s3 on either side. */

MOD__FN void mod__row_major(const mod_tensor *x, size_t *stride)
{
   int i;
   size_t n = 1;
   for (i = MOD_TENSOR_MAX_DIM - 1; i >= 0; --i) {
      stride[i] = i < x->n_dim ? n : 0;
      if (i < x->n_dim) n *= (size_t)x->dim[i];
   }
}

enum { MOD__TRANSPOSE, MOD__SLICE, MOD__CONCAT };

/* y = x or, backward, dx += dy, for input `which` of y. option[0]: the dimension; option[1]: the slice's start, or the
   other dimension; option[2]: which of the three. */
MOD__FN void mod__walk(mod_tensor *y, int which, int backward)
{
   mod_tensor *x = y->in[which], *smaller = y->option[2] == MOD__CONCAT ? x : y;
   size_t x_stride[MOD_TENSOR_MAX_DIM], y_stride[MOD_TENSOR_MAX_DIM], x_first = 0, y_first = 0;
   int dim[MOD_TENSOR_MAX_DIM], i[MOD_TENSOR_MAX_DIM], k, d = y->option[0], e = y->option[1];
   for (k = 0; k < MOD_TENSOR_MAX_DIM; ++k) dim[k] = k < y->n_dim ? smaller->dim[k] : 1;
   mod__row_major(x, x_stride);
   mod__row_major(y, y_stride);
   if (y->option[2] == MOD__TRANSPOSE) {
      size_t s = x_stride[d];
      x_stride[d] = x_stride[e];
      x_stride[e] = s;
   }
   if (y->option[2] == MOD__SLICE) x_first = (size_t)e * x_stride[d];
   if (y->option[2] == MOD__CONCAT && which == 1) y_first = (size_t)y->in[0]->dim[d] * y_stride[d];
   for (i[0] = 0; i[0] < dim[0]; ++i[0])
      for (i[1] = 0; i[1] < dim[1]; ++i[1])
         for (i[2] = 0; i[2] < dim[2]; ++i[2])
            for (i[3] = 0; i[3] < dim[3]; ++i[3]) {
               size_t from = x_first, to = y_first;
               for (k = 0; k < MOD_TENSOR_MAX_DIM; ++k) {
                  from += (size_t)i[k] * x_stride[k];
                  to += (size_t)i[k] * y_stride[k];
               }
               if (backward)
                  x->grad[from] += y->grad[to];
               else
                  y->data[to] = x->data[from];
            }
}

MOD__FN void mod__copy_backward(mod_tape *t, mod_tensor *y)
{
   int which;
   (void)t;
   for (which = 0; which < 2; ++which)
      if (y->in[which] && y->in[which]->grad) mod__walk(y, which, 1);
}

MOD__FN mod_tensor *mod__copy(mod_tape *t, mod_tensor *a, mod_tensor *b, const int *dim, int n_max, int kind, int d,
                              int e)
{
   mod_tensor *y = mod__output(t, a->n_dim, dim, n_max, a, b, NULL, mod__copy_backward);
   int which;
   if (!y) return NULL;
   y->option[0] = d;
   y->option[1] = e;
   y->option[2] = kind;
   for (which = 0; which < (b ? 2 : 1) && !t->desc.measure; ++which) mod__walk(y, which, 0);
   return y;
}

/* 1 if dimension d of x may be cut or moved: it exists, and is not one of rows that depend on the data. */
MOD__FN int mod__movable(mod_tape *t, const mod_tensor *x, int d)
{
   if (d < 0 || d >= x->n_dim)
      mod_tape_fail(t, MOD_RESULT_ARG, "there is no such dimension", d);
   else if (d == 0 && x->n_max)
      mod_tape_fail(t, MOD_RESULT_SHAPE, "rows that depend on the data stay rows", d);
   return t->error.code == MOD_RESULT_OK;
}

MODDEF mod_tensor *mod_transpose(mod_tape *tape, mod_tensor *x, int dim_a, int dim_b)
{
   int dim[MOD_TENSOR_MAX_DIM];
   if (!mod__ready(tape, x, x, x) || !mod__movable(tape, x, dim_a) || !mod__movable(tape, x, dim_b)) return NULL;
   memcpy(dim, x->dim, sizeof dim);
   dim[dim_a] = x->dim[dim_b];
   dim[dim_b] = x->dim[dim_a];
   return mod__copy(tape, x, NULL, dim, x->n_max, MOD__TRANSPOSE, dim_a, dim_b);
}

MODDEF mod_tensor *mod_slice(mod_tape *tape, mod_tensor *x, int dim, int first, int count)
{
   int out[MOD_TENSOR_MAX_DIM];
   if (!mod__ready(tape, x, x, x) || !mod__movable(tape, x, dim)) return NULL;
   if (first < 0 || count < 0 || first > x->dim[dim] || count > x->dim[dim] - first)
      return mod__refuse(tape, MOD_RESULT_ARG, "slice: outside the tensor", first);
   memcpy(out, x->dim, sizeof out);
   out[dim] = count;
   return mod__copy(tape, x, NULL, out, x->n_max, MOD__SLICE, dim, first);
}

MODDEF mod_tensor *mod_concat(mod_tape *tape, mod_tensor *a, mod_tensor *b, int dim)
{
   int i, out[MOD_TENSOR_MAX_DIM], fits;
   if (!mod__ready(tape, a, b, a) || !mod__movable(tape, a, dim) || !mod__movable(tape, b, dim)) return NULL;
   fits = a->n_dim == b->n_dim && a->n_max == b->n_max;
   for (i = 0; fits && i < a->n_dim; ++i) fits = i == dim || a->dim[i] == b->dim[i];
   if (!fits || a->dim[dim] > INT_MAX - b->dim[dim])
      return mod__shape_error(tape, "concat: the tensors differ in another dimension");
   memcpy(out, a->dim, sizeof out);
   out[dim] += b->dim[dim];
   return mod__copy(tape, a, b, out, a->n_max, MOD__CONCAT, dim, 0);
}

/* --- an op of the caller's own --- */

MODDEF mod_tensor *mod_custom(mod_tape *tape, const mod_custom_desc *desc)
{
   mod_tensor *y, *in[MOD_TENSOR_MAX_INPUTS] = {NULL, NULL, NULL};
   int i, n_max = 0;
   if (!tape || tape->error.code != MOD_RESULT_OK) return NULL;
   if (!desc || !desc->forward || desc->n_in < 0 || desc->n_in > MOD_TENSOR_MAX_INPUTS)
      return mod__refuse(tape, MOD_RESULT_ARG, "custom: a forward function and 0 to 3 inputs are needed", -1);
   for (i = 0; i < desc->n_in; ++i) {
      if (!desc->in[i]) return mod__refuse(tape, MOD_RESULT_ARG, "custom: an input tensor is NULL", i);
      in[i] = desc->in[i];
   }
   if (desc->by_rows) {
      if (!in[0] || desc->n_dim < 2 || desc->dim[0] != in[0]->dim[0])
         return mod__shape_error(tape, "custom: by_rows needs two dimensions or more, and as many rows as in[0]");
      n_max = in[0]->n_max;
   }
   y = mod__output(tape, desc->n_dim, desc->dim, n_max, in[0], in[1], in[2], desc->backward);
   if (y) y->saved = mod__zeroed(tape, desc->saved_bytes, 1);
   if (tape->error.code != MOD_RESULT_OK) return NULL;
   y->user = desc->user;
   if (tape->desc.measure) return y;
   desc->forward(tape, y);
   return tape->error.code == MOD_RESULT_OK ? y : NULL;
}

/* =================================================================================================================
   >>model  Model: settings, named parameters, memory
   ================================================================================================================= */

MOD__FN int mod__or(int value, int otherwise) { return value ? value : otherwise; }
MOD__FN double mod__or_real(double value, double otherwise) { return value == 0 ? otherwise : value; }

MODDEF mod_config mod_config_resolve(const mod_config *cfg)
{
   mod_config c;
   memset(&c, 0, sizeof c);
   if (!cfg) return c;
   c = *cfg;
   c.n_heads = mod__or(c.n_heads, mod__max(1, c.d_model / 64));
   c.n_kv_heads = mod__or(c.n_kv_heads, c.n_heads);
   c.activation = mod__or(c.activation, MOD_ACTIVATION_GELU);
   if (!c.d_ff && c.d_model > 0 && c.d_model <= 1 << 16)
      c.d_ff = c.activation == MOD_ACTIVATION_SWIGLU ? (c.d_model * 8 / 3 + 15) / 16 * 16 : 4 * c.d_model;
   c.norm = mod__or(c.norm, MOD_NORM_RMS);
   c.position = mod__or(c.position, MOD_POSITION_ROPE);
   c.bias = mod__or(c.bias, MOD_BIAS_OFF);
   c.head = mod__or(c.head, MOD_HEAD_TIED);
   c.mlp = mod__or(c.mlp, MOD_MLP_PLAIN);
   c.select = mod__or(c.select, c.mlp == MOD_MLP_MODE ? MOD_SELECT_ALL : MOD_SELECT_LEARNED);
   c.route_first = mod__or(c.route_first, 2);
   c.route_every = mod__or(c.route_every, 2);
   c.capacity = mod__or_real(c.capacity, 0.125);
   c.gate = mod__or(c.gate, MOD_GATE_RAW);
   c.gate_scale = mod__or_real(c.gate_scale, 0.2);
   c.bypass = mod__or(c.bypass, MOD_BYPASS_IDENTITY);
   c.kv_select = mod__or(c.kv_select, MOD_SELECT_SAME);
   c.kv_gate = mod__or(c.kv_gate, MOD_GATE_SIGMOID);
   c.kv_capacity = mod__or_real(c.kv_capacity, c.capacity);
   c.causal = mod__or(c.causal, MOD_CAUSAL_PREDICTOR);
   c.router_loss = mod__or_real(c.router_loss, 0.01);
   c.predictor_loss = mod__or_real(c.predictor_loss, 1);
   c.n_experts = mod__or(c.n_experts, 4);
   c.n_noops = mod__or(c.n_noops, c.n_experts);
   c.choices = mod__or(c.choices, 1);
   c.capacity_factor = mod__or_real(c.capacity_factor, 1);
   c.balance_loss = mod__or_real(c.balance_loss, 0.01);
   c.z_loss = mod__or_real(c.z_loss, 0.001);
   c.norm_eps = mod__or_real(c.norm_eps, 1e-5);
   c.rope_base = mod__or_real(c.rope_base, 10000);
   return c;
}

/* The settings of a block of a resolved config. */
MOD__FN mod_block_config mod__block_of(const mod_config *c, int block)
{
   mod_block_config b;
   int number = block + 1, routed = number >= c->route_first && (number - c->route_first) % c->route_every == 0;
   memset(&b, 0, sizeof b);
   if (c->blocks) b = c->blocks[block];
   b.mlp = mod__or(b.mlp, c->mlp);
   b.select = mod__or(b.select, routed ? c->select : MOD_SELECT_ALL);
   b.gate = b.select == MOD_SELECT_LEARNED ? mod__or(b.gate, c->gate)
            : b.select == MOD_SELECT_TOKEN ? MOD_GATE_RAW : MOD_GATE_ONE;
   b.capacity = b.select == MOD_SELECT_ALL && b.mlp != MOD_MLP_MODE ? 1 : mod__or_real(b.capacity, c->capacity);
   b.kv_select = mod__or(b.kv_select, routed ? c->kv_select : MOD_SELECT_SAME);
   b.kv_gate = b.kv_select == MOD_SELECT_LEARNED ? mod__or(b.kv_gate, c->kv_gate) : MOD_GATE_ONE;
   b.kv_capacity = b.kv_select == MOD_SELECT_ALL || b.kv_select == MOD_SELECT_SAME
                      ? 1 : mod__or_real(b.kv_capacity, c->kv_capacity);
   b.choice = mod__or(b.choice, mod__or(c->choice, b.select == MOD_SELECT_ALL ? MOD_CHOICE_TOKEN : MOD_CHOICE_EXPERT));
   return b;
}

MODDEF mod_block_config mod_config_block(const mod_config *cfg, int block)
{
   mod_config c = mod_config_resolve(cfg);
   mod_block_config none;
   memset(&none, 0, sizeof none);
   return block >= 0 && block < c.n_layers && c.route_first > 0 && c.route_every > 0 ? mod__block_of(&c, block) : none;
}

/* The sentence that is wrong about a resolved config, whatever its blocks say, or NULL. */
MOD__FN const char *mod__complaint_of_model(const mod_config *c)
{
   int pooled = c->head == MOD_HEAD_CLASS || c->head == MOD_HEAD_REGRESSION;
   if (c->n_inputs < 0 || c->n_inputs > 1 << 16) return "n_inputs must be in [0, 2^16]";
   if (c->vocab_size < !(c->n_inputs && pooled) || c->vocab_size > 1 << 20) return "vocab_size must be in [1, 2^20]";
   if (c->context < 1 || c->context > 1 << 20) return "context must be in [1, 2^20]";
   if (c->n_layers < 1 || c->n_layers > MOD__MAX_LAYERS) return "n_layers must be in [1, 1024]";
   if (c->d_model < 1 || c->d_model > 1 << 16) return "d_model must be in [1, 2^16]";
   if (c->n_heads < 1 || c->d_model % c->n_heads) return "n_heads must be at least 1 and divide d_model";
   if (c->n_kv_heads < 1 || c->n_heads % c->n_kv_heads) return "n_kv_heads must be at least 1 and divide n_heads";
   if (c->d_ff < 1 || c->d_ff > 1 << 18) return "d_ff must be in [1, 2^18]";
   if (c->norm < MOD_NORM_RMS || c->norm > MOD_NORM_LAYER) return "norm is no mod_norm";
   if (c->position < MOD_POSITION_ROPE || c->position > MOD_POSITION_LEARNED) return "position is no mod_position";
   if (c->position == MOD_POSITION_ROPE && c->d_model / c->n_heads % 2)
      return "RoPE needs an even head size: d_model / n_heads";
   if (c->activation < MOD_ACTIVATION_GELU || c->activation > MOD_ACTIVATION_SWIGLU)
      return "activation is no mod_activation";
   if (c->bias < MOD_BIAS_OFF || c->bias > MOD_BIAS_ON) return "bias is no mod_bias_use";
   if (c->head < MOD_HEAD_TIED || c->head > MOD_HEAD_REGRESSION) return "head is no mod_head";
   if (c->n_inputs && c->head == MOD_HEAD_TIED) return "a tied head needs token ids: choose another, or n_inputs 0";
   if (pooled ? c->n_outputs < 1 || c->n_outputs > 1 << 20 : c->n_outputs != 0)
      return "n_outputs must be in [1, 2^20] with a class or regression head, and 0 with any other";
   if (c->mask < MOD_MASK_CAUSAL || c->mask > MOD_MASK_FULL) return "mask is no mod_mask";
   if (c->select < MOD_SELECT_ALL || c->select > MOD_SELECT_NONE) return "select is no mod_select for a block";
   if (c->route_first < 1) return "route_first counts from 1";
   if (c->route_every < 1) return "route_every must be at least 1";
   if (!(mod__positive(c->capacity) && c->capacity <= 1)) return "capacity must be in (0, 1]";
   if (c->gate < MOD_GATE_RAW || c->gate > MOD_GATE_ONE) return "gate is no mod_gate_kind";
   if (!mod__positive(c->gate_scale)) return "gate_scale must be above 0";
   if (c->bypass < MOD_BYPASS_IDENTITY || c->bypass > MOD_BYPASS_GATED) return "bypass is no mod_bypass";
   if (c->kv_select < MOD_SELECT_ALL || c->kv_select > MOD_SELECT_SAME || c->kv_select == MOD_SELECT_TOKEN)
      return "kv_select is no mod_select for keys and values";
   if (c->kv_gate < MOD_GATE_RAW || c->kv_gate > MOD_GATE_ONE) return "kv_gate is no mod_gate_kind";
   if (!(mod__positive(c->kv_capacity) && c->kv_capacity <= 1)) return "kv_capacity must be in (0, 1]";
   if (c->causal < MOD_CAUSAL_PREDICTOR || c->causal > MOD_CAUSAL_NONE) return "causal is no mod_causal";
   if (!mod__positive(c->router_loss)) return "router_loss must be above 0 (MOD_CAUSAL_NONE turns it off)";
   if (!mod__positive(c->predictor_loss)) return "predictor_loss must be above 0 (MOD_CAUSAL_NONE turns it off)";
   if (c->mlp < MOD_MLP_PLAIN || c->mlp > MOD_MLP_MODE) return "mlp is no mod_mlp_kind";
   if (c->n_experts < 1 || c->n_experts > MOD__MAX_EXPERTS) return "n_experts must be in [1, 64]";
   if (c->n_noops < 1 || c->n_noops > MOD__MAX_EXPERTS) return "n_noops must be in [1, 64]";
   if (c->choice < 0 || c->choice > MOD_CHOICE_EXPERT) return "choice is no mod_choice";
   if (c->choices < 1 || c->choices > 2) return "choices must be 1 or 2";
   if (!mod__positive(c->capacity_factor)) return "capacity_factor must be above 0";
   if (!mod__positive(c->balance_loss)) return "balance_loss must be above 0";
   if (!mod__positive(c->z_loss)) return "z_loss must be above 0";
   if (!mod__positive(c->norm_eps)) return "norm_eps must be above 0";
   if (!(c->rope_base >= 1 && mod__finite(c->rope_base))) return "rope_base must be at least 1, and finite";
   return NULL;
}

/* The same with its blocks; *block is set where it is about one. */
MOD__FN const char *mod__complaint(const mod_config *c, int *block)
{
   const char *complaint = mod__complaint_of_model(c);
   int i;
   *block = -1;
   if (complaint) return complaint;
   for (i = 0; i < c->n_layers; ++i) {
      mod_block_config b;
      *block = i;
      if (c->blocks) {
         b = c->blocks[i];
         if (b.select < 0 || b.select > MOD_SELECT_NONE) return "a block's select is no mod_select for a block";
         if (b.gate < 0 || b.gate > MOD_GATE_ONE) return "a block's gate is no mod_gate_kind";
         if (!(b.capacity == 0 || mod__positive(b.capacity)) || b.capacity > 1)
            return "a block's capacity must be in (0, 1], or 0 for the config's";
         if (b.kv_select < 0 || b.kv_select > MOD_SELECT_SAME || b.kv_select == MOD_SELECT_TOKEN)
            return "a block's kv_select is no mod_select for keys and values";
         if (b.kv_gate < 0 || b.kv_gate > MOD_GATE_ONE) return "a block's kv_gate is no mod_gate_kind";
         if (!(b.kv_capacity == 0 || mod__positive(b.kv_capacity)) || b.kv_capacity > 1)
            return "a block's kv_capacity must be in (0, 1], or 0 for the config's";
         if (b.mlp < 0 || b.mlp > MOD_MLP_MODE) return "a block's mlp is no mod_mlp_kind";
         if (b.choice < 0 || b.choice > MOD_CHOICE_EXPERT) return "a block's choice is no mod_choice";
      }
      b = mod__block_of(c, i);
      if (b.mlp == MOD_MLP_MODE && b.select != MOD_SELECT_ALL)
         return "MOD_MLP_MODE routes in front of the MLP: its block takes every token, MOD_SELECT_ALL";
      if (b.mlp != MOD_MLP_PLAIN && b.choice == MOD_CHOICE_TOKEN &&
          c->choices > c->n_experts + (b.mlp == MOD_MLP_MODE ? c->n_noops : 0))
         return "choices must not be more than there are experts";
      if (c->bypass == MOD_BYPASS_GATED && b.select == MOD_SELECT_LEARNED && b.gate != MOD_GATE_TANH)
         return "a gated bypass needs MOD_GATE_TANH: other gates would shrink what is passed by";
      if (b.kv_select != MOD_SELECT_SAME && b.select == MOD_SELECT_NONE)
         return "a block that takes nobody has no use for keys and values";
   }
   return NULL;
}

/* Resolves into *c, or says what is wrong. */
MOD__FN mod_result mod__settle(const mod_config *cfg, mod_config *c, mod_error *err)
{
   const char *complaint;
   int block;
   if (!cfg) return mod__bad(err, "the config is NULL");
   *c = mod_config_resolve(cfg);
   complaint = mod__complaint(c, &block);
   return complaint ? mod__error(err, MOD_RESULT_CONFIG, complaint, block, -1) : mod__ok(err);
}

MODDEF mod_result mod_config_check(const mod_config *cfg, mod_error *err)
{
   mod_config c;
   return mod__settle(cfg, &c, err);
}

/* The routers that a block may have. Each of its paths decides about rows by itself. */
enum { MOD__OF_BLOCK, MOD__OF_KV, MOD__OF_EXPERTS, MOD__ROUTERS };

typedef struct mod__router {
   int columns; /* of its scores; 0: there is no such router */
   int paths;   /* how many of these are paths that take rows */
   int path;    /* the number of the first, as mod_config_paths counts */
   int expert_choice; /* 1: a path takes its best rows; 0: rows choose a path */
   int up;      /* 1: the number of slots is rounded up (experts); 0: down, and at least 1 */
   double share;        /* of the rows, for each path */
   double warm_share;   /* of `least_capacity`, what each path takes at least; 0: its share is not warmed up */
   int decides;         /* 1: causally by a logit; a path that takes every row has nothing to decide */
   int predictor, loss; /* 1: by a predictor; by the scores themselves, trained by a loss of their own */
} mod__router;

MOD__FN mod__router mod__router_of(const mod_config *c, int block, int which)
{
   mod_block_config b = mod__block_of(c, block);
   mod__router r;
   int select = which == MOD__OF_BLOCK ? b.select : which == MOD__OF_KV ? b.kv_select
                : b.mlp == MOD_MLP_PLAIN ? MOD_SELECT_ALL
                : b.choice == MOD_CHOICE_EXPERT ? MOD_SELECT_LEARNED : MOD_SELECT_TOKEN;
   memset(&r, 0, sizeof r);
   if (select != MOD_SELECT_LEARNED && select != MOD_SELECT_TOKEN) return r;
   r.expert_choice = select == MOD_SELECT_LEARNED;
   r.path = which;
   r.paths = 1;
   r.share = which == MOD__OF_KV ? b.kv_capacity : b.capacity;
   r.warm_share = 1;
   r.columns = r.expert_choice ? 1 : 2;
   if (which == MOD__OF_EXPERTS) {
      r.up = 1;
      r.paths = c->n_experts;
      r.share = (b.mlp == MOD_MLP_MODE ? b.capacity : c->capacity_factor) / c->n_experts;
      r.warm_share = b.mlp == MOD_MLP_MODE ? 1.0 / c->n_experts : 0;
      r.columns = r.paths + (b.mlp == MOD_MLP_MODE ? c->n_noops : 0);
   }
   r.decides = r.expert_choice && r.share < 1 && c->mask == MOD_MASK_CAUSAL;
   r.predictor = r.decides && (c->causal == MOD_CAUSAL_PREDICTOR || c->causal == MOD_CAUSAL_BOTH);
   r.loss = r.decides && (c->causal == MOD_CAUSAL_ROUTER || c->causal == MOD_CAUSAL_BOTH);
   return r;
}

/* ceil(1 / c): of every so many rows one is a share of c; no more than any context has */
MOD__FN int mod__ceil_inverse(double c)
{
   double every = -floor(1e-6 - 1 / c);
   return every < 1 << 20 ? (int)every : 1 << 20;
}

/* 1 if a selection takes every row in every mode. */
MOD__FN int mod__takes_all(int select, double capacity)
{
   return select == MOD_SELECT_ALL || (capacity >= 1 && select != MOD_SELECT_TOKEN && select != MOD_SELECT_NONE);
}

/* The rows of n that a selection takes in top-k mode, or of TOKEN the most that it takes. */
MOD__FN int mod__selected(const mod_config *c, int select, double capacity, int n)
{
   switch (select) {
   case MOD_SELECT_LEARNED:
   case MOD_SELECT_STOCHASTIC: return mod_route_capacity(n, capacity);
   case MOD_SELECT_EVERY: return n / mod__ceil_inverse(capacity) + (n % mod__ceil_inverse(capacity) > 0);
   case MOD_SELECT_TOKEN:
   case MOD_SELECT_FIRST: return mod__min(n, mod_route_capacity(c->context, capacity));
   case MOD_SELECT_NONE: return 0;
   default: return n;
   }
}

/* Slots of a path that rows choose, in a sequence of any length; least: no block takes a smaller share. */
MOD__FN int mod__slots(const mod_config *c, int block, const mod__router *r, double least)
{
   mod_block_config b = mod__block_of(c, block);
   double share = r->share < least * r->warm_share ? least * r->warm_share : r->share;
   if (!r->up) return mod__selected(c, MOD_SELECT_TOKEN, share, c->context);
   if (b.capacity < least) b.capacity = least;
   return mod_route_slots(mod__selected(c, b.select, b.capacity, c->context), share * c->choices);
}

MODDEF int mod_config_paths(const mod_config *cfg)
{
   mod_config c;
   int l, paths = 1;
   if (mod__settle(cfg, &c, NULL) != MOD_RESULT_OK) return 0;
   for (l = 0; l < c.n_layers; ++l) {
      if (mod__router_of(&c, l, MOD__OF_KV).expert_choice) paths = mod__max(paths, 2);
      if (mod__router_of(&c, l, MOD__OF_EXPERTS).expert_choice) paths = 2 + c.n_experts;
   }
   return paths;
}

/* --- the parameters: one table says which there are, their shapes, and how they start --- */

enum {
   MOD__EMBED, MOD__INPUT, MOD__INPUT_BIAS, MOD__POSITION, /* the model's own (block -1) */
   MOD__NORM_GAIN, MOD__NORM_BIAS, MOD__HEAD, MOD__HEAD_BIAS,
   MOD__NORM1_GAIN, MOD__NORM1_BIAS, MOD__WQ, MOD__BQ, MOD__WK, MOD__BK, MOD__WV, MOD__BV, MOD__WO, MOD__BO,
   MOD__NORM2_GAIN, MOD__NORM2_BIAS, MOD__W1, MOD__B1, MOD__WG, MOD__BG, MOD__W2, MOD__B2,
   MOD__ROUTER, MOD__PREDICTOR_W1, MOD__PREDICTOR_B1, MOD__PREDICTOR_W2, MOD__PREDICTOR_B2, /* of MOD__OF_BLOCK; */
   MOD__ROUTER_SLOTS = MOD__PREDICTOR_B2 + 1 - MOD__ROUTER, /* then as many of MOD__OF_KV and of MOD__OF_EXPERTS */
   MOD__SLOTS = MOD__ROUTER + MOD__ROUTERS * MOD__ROUTER_SLOTS, MOD__BLOCK_SLOT = MOD__NORM1_GAIN
};

typedef struct mod__spec {
   const char *name;
   int rows, cols;  /* cols 0: a vector of `rows` numbers */
   double std, value; /* starts as N(0, std), or as `value` where std is 0 */
   int decay, predictor;
   int experts; /* 0, or: so many of these, one after the other */
} mod__spec;

MOD__FN mod__spec mod__matrix(const char *name, int in, int out, double std)
{
   mod__spec s = {name, in, out, std, 0, 1, 0, 0};
   return s;
}

MOD__FN mod__spec mod__vector(const char *name, int n, double value)
{
   mod__spec s = {name, n, 0, 0, value, 0, 0, 0};
   return s;
}

/* A router, or a part of its predictor. */
MOD__FN int mod__router_spec(const mod_config *c, int block, int slot, mod__spec *s)
{
   static const char *const names[MOD__ROUTERS][5] = {
      {"router", "predictor.w1", "predictor.b1", "predictor.w2", "predictor.b2"},
      {"kv.router", "kv.predictor.w1", "kv.predictor.b1", "kv.predictor.w2", "kv.predictor.b2"},
      {"mlp.router", "mlp.predictor.w1", "mlp.predictor.b1", "mlp.predictor.w2", "mlp.predictor.b2"}};
   int which = (slot - MOD__ROUTER) / MOD__ROUTER_SLOTS, d = c->d_model, hidden = mod__max(16, d / 4);
   mod__router r = mod__router_of(c, block, which);
   const char *name = names[which][(slot - MOD__ROUTER) % MOD__ROUTER_SLOTS];
   switch (MOD__ROUTER + (slot - MOD__ROUTER) % MOD__ROUTER_SLOTS) {
   case MOD__ROUTER: *s = mod__matrix(name, d, r.columns, 0.02); break;
   case MOD__PREDICTOR_W1: *s = mod__matrix(name, d, hidden, 0.02); break;
   case MOD__PREDICTOR_B1: *s = mod__vector(name, hidden, 0); break;
   case MOD__PREDICTOR_W2: *s = mod__matrix(name, hidden, r.paths, 0); break;
   default: /* the base rate */
      *s = mod__vector(name, r.paths, r.predictor ? mod__log64(r.share) - mod__log64(1 - r.share) : 0);
   }
   s->decay = 0;
   s->predictor = (slot - MOD__ROUTER) % MOD__ROUTER_SLOTS > 0;
   return s->predictor ? r.predictor : r.columns > 0;
}

/* *s describes the tensor in a slot of a block (-1: the model); 0 if this model has none there. */
MOD__FN int mod__spec_of(const mod_config *c, int block, int slot, mod__spec *s)
{
   const double std = 0.02, fan = 1 / sqrt((double)c->d_model), out = 1 / sqrt(2.0 * c->n_layers);
   int d = c->d_model, kv = d / c->n_heads * c->n_kv_heads, ff = c->d_ff;
   int bias = c->bias == MOD_BIAS_ON, norm_bias = bias && c->norm == MOD_NORM_LAYER;
   int gated = c->activation == MOD_ACTIVATION_SWIGLU, pooled = c->head >= MOD_HEAD_CLASS, has;
   if ((block < 0) != (slot < MOD__BLOCK_SLOT)) return 0;
   switch (slot) {
   case MOD__EMBED: *s = mod__matrix("embed", c->vocab_size, d, std); return !c->n_inputs;
   case MOD__INPUT: *s = mod__matrix("input", c->n_inputs, d, std); return c->n_inputs > 0;
   case MOD__INPUT_BIAS: *s = mod__vector("input.bias", d, 0); return c->n_inputs && bias;
   case MOD__POSITION:
      *s = mod__matrix("position", c->context, d, std);
      s->decay = 0;
      return c->position == MOD_POSITION_LEARNED;
   case MOD__NORM_GAIN: *s = mod__vector("norm.gain", d, 1); return 1;
   case MOD__NORM_BIAS: *s = mod__vector("norm.bias", d, 0); return norm_bias;
   case MOD__HEAD:
      *s = mod__matrix("head", d, pooled ? c->n_outputs : c->vocab_size, std);
      return c->head != MOD_HEAD_TIED;
   case MOD__HEAD_BIAS: *s = mod__vector("head.bias", c->n_outputs, 0); return pooled && bias;

   case MOD__NORM1_GAIN: *s = mod__vector("norm1.gain", d, 1); return 1;
   case MOD__NORM1_BIAS: *s = mod__vector("norm1.bias", d, 0); return norm_bias;
   case MOD__WQ: *s = mod__matrix("attn.wq", d, d, fan); return 1;
   case MOD__BQ: *s = mod__vector("attn.bq", d, 0); return bias;
   case MOD__WK: *s = mod__matrix("attn.wk", d, kv, fan); return 1;
   case MOD__BK: *s = mod__vector("attn.bk", kv, 0); return bias;
   case MOD__WV: *s = mod__matrix("attn.wv", d, kv, fan); return 1;
   case MOD__BV: *s = mod__vector("attn.bv", kv, 0); return bias;
   case MOD__WO: *s = mod__matrix("attn.wo", d, d, out * fan); return 1;
   case MOD__BO: *s = mod__vector("attn.bo", d, 0); return bias;
   case MOD__NORM2_GAIN: *s = mod__vector("norm2.gain", d, 1); return 1;
   case MOD__NORM2_BIAS: *s = mod__vector("norm2.bias", d, 0); return norm_bias;
   case MOD__W1: *s = mod__matrix("mlp.w1", d, ff, fan); has = 1; break;
   case MOD__B1: *s = mod__vector("mlp.b1", ff, 0); has = bias; break;
   case MOD__WG: *s = mod__matrix("mlp.wg", d, ff, fan); has = gated; break;
   case MOD__BG: *s = mod__vector("mlp.bg", ff, 0); has = gated && bias; break;
   case MOD__W2: *s = mod__matrix("mlp.w2", ff, d, out / sqrt((double)ff)); has = 1; break;
   case MOD__B2: *s = mod__vector("mlp.b2", d, 0); has = bias; break;
   default: return mod__router_spec(c, block, slot, s);
   }
   if (mod__block_of(c, block).mlp != MOD_MLP_PLAIN) s->experts = c->n_experts;
   return has;
}

enum { MOD__NAME = 32 };

struct mod_model {
   mod_allocator allocator; /* of mod_model_create */
   mod_config config; /* resolved; its blocks point to the list below */
   mod_block_config *blocks; /* [n_layers] */
   int paths;                /* mod_config_paths */
   double *theta, *measured; /* [paths][n_layers]; measured: room for calibration */
   mod_param *param;         /* [n_tensors] in stored order */
   int *index;               /* [n_layers + 1][MOD__SLOTS]: which parameter is in a slot; row 0 is the model's own */
   mod_real *params;         /* [n_params] */
   size_t n_params;
   int n_tensors;
};

MOD__FN size_t mod__thetas(const mod_model *m) { return (size_t)m->paths * (size_t)m->config.n_layers; }

/* "blocks.12.attn.wq" */
MOD__FN void mod__name(char *out, int block, const char *suffix)
{
   if (block >= 0) {
      int unit = 1000; /* MOD__MAX_LAYERS has four digits */
      memcpy(out, "blocks.", 7);
      out += 7;
      while (unit > 1 && unit > block) unit /= 10;
      for (; unit; unit /= 10) *out++ = (char)('0' + block / unit % 10);
      *out++ = '.';
   }
   memcpy(out, suffix, strlen(suffix) + 1);
}

/* Walks all parameters in stored order: counts them, and fills the model's table if there is a model. */
MOD__FN int mod__enumerate(const mod_config *c, mod_model *m, char *names, size_t *n_params, int *n_tensors)
{
   int block, slot, i, count = 0;
   size_t total = 0, n;
   for (block = -1; block < c->n_layers; ++block)
      for (slot = 0; slot < MOD__SLOTS; ++slot) {
         mod__spec s;
         int has = mod__spec_of(c, block, slot, &s);
         if (m) m->index[(size_t)(block + 1) * MOD__SLOTS + (size_t)slot] = has ? count : -1;
         if (!has) continue;
         if (!mod__mul(&n, (size_t)s.rows, (size_t)(s.cols ? s.cols : 1)) ||
             !mod__mul(&n, n, (size_t)(s.experts ? s.experts : 1)))
            return 0;
         if (m) {
            mod_param *p = m->param + count;
            char *name = names + (size_t)count * MOD__NAME;
            mod__name(name, block, s.name);
            p->name = name;
            p->dim[0] = s.experts;
            p->n_dim = s.experts > 0;
            p->dim[p->n_dim++] = s.rows;
            if (s.cols) p->dim[p->n_dim++] = s.cols;
            for (i = p->n_dim; i < 3; ++i) p->dim[i] = 1;
            p->offset = total;
            p->count = n;
            p->decay = s.decay;
            p->predictor = s.predictor;
            p->data = m->params + total;
         }
         if (!mod__add_size(&total, total, n)) return 0;
         ++count;
      }
   *n_params = total;
   *n_tensors = count;
   return 1;
}

/* One walk over a model's memory: counts with a counting arena; places with a real one, and then sets *out. */
MOD__FN mod_result mod__model_layout(const mod_config *c, mod_arena *a, mod_model **out, mod_error *err)
{
   size_t layers = (size_t)c->n_layers;
   mod_model m, *model;
   char *names;
   int i, fits = 1;
   memset(&m, 0, sizeof m);
   m.config = *c;
   m.paths = mod_config_paths(c);
   if (!mod__enumerate(c, NULL, NULL, &m.n_params, &m.n_tensors))
      return mod__error(err, MOD_RESULT_MEMORY, "the model is too large for this machine's addresses", -1, -1);
   model = (mod_model *)mod__push(a, 1, sizeof m, &fits);
   m.config.blocks = m.blocks = (mod_block_config *)mod__push(a, layers, sizeof *m.blocks, &fits);
   m.theta = (double *)mod__push(a, 2 * layers * (size_t)m.paths, sizeof *m.theta, &fits);
   m.param = (mod_param *)mod__push(a, (size_t)m.n_tensors, sizeof *m.param, &fits);
   m.index = (int *)mod__push(a, (layers + 1) * MOD__SLOTS, sizeof *m.index, &fits);
   names = (char *)mod__push(a, (size_t)m.n_tensors, MOD__NAME, &fits);
   m.params = (mod_real *)mod__push(a, m.n_params, sizeof *m.params, &fits);
   if (!fits) return mod__too_small(err);
   if (!a->base) return mod__ok(err);
   memset(a->base, 0, a->used);
   m.measured = m.theta + layers * (size_t)m.paths;
   for (i = 0; i < c->n_layers; ++i) m.blocks[i] = mod__block_of(c, i);
   *model = m;
   mod__enumerate(&model->config, model, names, &m.n_params, &m.n_tensors);
   *out = model;
   return mod__ok(err);
}

MODDEF mod_model *mod_model_init(const mod_config *cfg, void *memory, size_t size, mod_error *err)
{
   mod_config c;
   mod_arena a;
   mod_model *m = NULL;
   if (mod__settle(cfg, &c, err) != MOD_RESULT_OK) return NULL;
   if (!memory) return mod__bad(err, "memory is NULL"), (mod_model *)NULL;
   if (mod_arena_init(&a, memory, size, err) != MOD_RESULT_OK) return NULL;
   return mod__model_layout(&c, &a, &m, err) == MOD_RESULT_OK ? m : NULL;
}

MODDEF mod_model *mod_model_create(const mod_config *cfg, const mod_allocator *allocator, mod_error *err)
{
   mod_config c;
   mod_arena a = mod__counter();
   mod_allocator chosen;
   void *memory;
   if (mod__settle(cfg, &c, err) != MOD_RESULT_OK || mod__model_layout(&c, &a, NULL, err) != MOD_RESULT_OK) return NULL;
   if ((memory = mod__allocate(&chosen, allocator, a.used, err)) == NULL) return NULL;
   return (mod_model *)mod__created(mod_model_init(cfg, memory, a.used, err), memory, &chosen);
}

MODDEF void mod_model_destroy(mod_model *model) { mod__destroy(model); }

MODDEF mod_result mod_model_randomize(mod_model *model, uint64_t seed, mod_error *err)
{
   int block, slot;
   if (!model) return mod__bad(err, "model is NULL");
   for (block = -1; block < model->config.n_layers; ++block)
      for (slot = 0; slot < MOD__SLOTS; ++slot) {
         mod__spec s;
         const mod_param *p;
         uint64_t stream;
         size_t i;
         if (!mod__spec_of(&model->config, block, slot, &s)) continue;
         p = model->param + model->index[(size_t)(block + 1) * MOD__SLOTS + (size_t)slot];
         stream = mod_random_stream(p->name);
         for (i = 0; i < p->count; ++i)
            p->data[i] = (mod_real)(s.std > 0 ? s.std * mod_random_normal(seed, stream, i) : s.value);
      }
   memset(model->theta, 0, mod__thetas(model) * sizeof *model->theta);
   return mod__ok(err);
}

MODDEF mod_config mod_model_config(const mod_model *model)
{
   return model ? model->config : mod_config_resolve(NULL);
}

MODDEF mod_real *mod_model_params(const mod_model *model, size_t *count)
{
   if (count) *count = model ? model->n_params : 0;
   return model ? model->params : NULL;
}

MODDEF double *mod_model_thresholds(const mod_model *model) { return model ? model->theta : NULL; }
MODDEF int mod_model_param_count(const mod_model *model) { return model ? model->n_tensors : 0; }

MODDEF mod_result mod_model_param(const mod_model *model, int index, mod_param *out, mod_error *err)
{
   if (!model || !out) return mod__bad(err, "model or out is NULL");
   if (index < 0 || index >= model->n_tensors)
      return mod__error(err, MOD_RESULT_ARG, "there is no parameter with this index", -1, index);
   *out = model->param[index];
   return mod__ok(err);
}

MODDEF int mod_model_find(const mod_model *model, const char *name)
{
   int i;
   for (i = 0; model && name && i < model->n_tensors; ++i)
      if (!strcmp(model->param[i].name, name)) return i;
   return -1;
}

/* =================================================================================================================
   >>blocks  Blocks, and the forward pass over them
   ================================================================================================================= */

/* What a session keeps of every block: the keys and values of the rows that the block took, and where they stand. */
typedef struct mod__cache {
   int length;      /* rows that there is room for in a block */
   int *start;      /* [n_layers][2]: 0 and the rows so far, as mod_rows has it */
   int *position;   /* [n_layers][length] */
   mod_real *k, *v; /* [n_layers][length][kv width], rotated; NULL while measuring */
   int *taken_slots; /* [n_layers][mod__choosable] of each path of a token-choice, or NULL */
} mod__cache;

/* Of a path over the sequences of a step: midpoints between the k-th and the next deciding logit. */
typedef struct mod__cutoff {
   double sum;
   int64_t count;
} mod__cutoff;

/* A forward pass under way. */
typedef struct mod__pass {
   const mod_config *c;
   const mod_model *model; /* NULL while measuring */
   mod_real *grads;        /* flat; NULL: no gradients */
   mod_tape *t;
   const mod_batch *batch;
   mod_forward *out;
   mod_rows *rows;   /* the real tokens */
   mod_tensor *rope; /* table of rotations, or NULL */
   mod_tensor *loss, loss_copy;
   double tokens; /* what the auxiliary losses divide by */
   int router_losses, predictors, balanced; /* routers that have them */
   mod_block_stats *stats;                  /* these four are NULL while measuring */
   int *kept, *expert_rows;
   unsigned char *entered;  /* of each row: did any routed block take it? */
   const mod__cache *cache; /* NULL outside a session; in one, only the last token gets logits */
   int first;               /* position of the first token */
   double *calibrated;      /* NULL, or [paths][n_layers]: thresholds by this pass */
   int too_few;             /* 1: a path took all rows, so that it has none */
   mod__cutoff *cutoff;     /* NULL, or [paths][n_layers] */
} mod__pass;

/* The parameter in a slot (of experts, number e) as a leaf of the tape; NULL if the model has none there. */
MOD__FN mod_tensor *mod__weight(mod__pass *p, int block, int e, int slot)
{
   if (p->model) {
      int i = p->model->index[(size_t)(block + 1) * MOD__SLOTS + (size_t)slot];
      const mod_param *w;
      int stacked = slot >= MOD__W1 && slot <= MOD__B2 && p->model->blocks[block].mlp != MOD_MLP_PLAIN;
      size_t at;
      if (i < 0) return NULL;
      w = p->model->param + i;
      at = stacked ? w->count / (size_t)w->dim[0] * (size_t)e : 0;
      return mod_leaf(p->t, w->data + at, p->grads ? p->grads + w->offset + at : NULL, w->n_dim - stacked,
                      w->dim + stacked);
   } else {
      mod__spec s;
      int dim[2], has = mod__spec_of(p->c, block, slot, &s);
      dim[0] = has ? s.rows : 0;
      dim[1] = has ? s.cols : 0;
      return has ? mod_leaf(p->t, NULL, p->grads, s.cols ? 2 : 1, dim) : NULL;
   }
}

/* x W + b; the slot of a bias comes after that of its weight or gain */
MOD__FN mod_tensor *mod__linear(mod__pass *p, int block, int e, mod_tensor *x, int slot)
{
   mod_tensor *y = mod_matmul(p->t, x, mod__weight(p, block, e, slot)), *b = mod__weight(p, block, e, slot + 1);
   return b ? mod_bias(p->t, y, b) : y;
}

MOD__FN mod_tensor *mod__norm_of(mod__pass *p, int block, mod_tensor *x, int slot)
{
   return mod__norm(p->t, x, mod__weight(p, block, 0, slot), mod__weight(p, block, 0, slot + 1), p->c->norm_eps,
                    p->c->norm);
}

MOD__FN void mod__show(mod__pass *p, int block, int site, const mod_rows *rows, const mod_tensor *x)
{
   if (p->batch->probe && !p->t->desc.measure && p->t->error.code == MOD_RESULT_OK)
      p->batch->probe(p->batch->probe_user, block, (mod_site)site, rows, x);
}

/* Dropout after the embedding (l = -1), attention (site 0) and MLP (site 1) of a block, if there is any. */
MOD__FN mod_tensor *mod__with_dropout(mod__pass *p, int l, int site, mod_tensor *x, const mod_rows *rows)
{
   uint64_t stream = mod_random_substream(mod_random_stream("dropout"), p->batch->step);
   if (!(p->batch->dropout > 0)) return x;
   stream = mod_random_substream(stream, (uint64_t)(2 * (l + 1) + site));
   return mod_dropout(p->t, x, rows, p->batch->dropout, p->batch->seed, stream, p->batch->first_id);
}

/* After what was made since `mark`: x, which is older, becomes y. Forward only: its numbers move into x and their
   memory is free again. While measuring: likewise the descriptions, so that a small buffer measures any depth. */
MOD__FN mod_tensor *mod__move(mod__pass *p, mod_mark mark, mod_tensor *x, mod_tensor *y)
{
   mod_tape *t = p->t;
   if (!y) return NULL;
   if (t->desc.forward_only) {
      if (!t->desc.measure && y->data != x->data && mod__count(y))
         memcpy(x->data, y->data, mod__count(y) * sizeof(mod_real));
      mod_tape_rewind(t, mark, NULL);
      return x;
   }
   if (!t->desc.measure) return y;
   *x = *y;
   if (p->loss) {
      p->loss_copy = *p->loss;
      p->loss = &p->loss_copy;
   }
   t->stub.used = mark.described;
   return x;
}

/* --- routers: who decides, and who is taken --- */

/* The parts of a router in a block. */
MOD__FN int mod__part_of(int which, int slot) { return slot + which * MOD__ROUTER_SLOTS; }

/* loss += weight term */
MOD__FN void mod__add_loss(mod__pass *p, mod_tensor *term, double weight)
{
   if (!term || !p->grads || !(p->batch->targets || p->batch->values)) return;
   term = mod_scale(p->t, term, weight);
   p->loss = p->loss ? mod_add(p->t, p->loss, term) : term;
}

/* BCE(logit, was it taken?) of one path of a router; *mean += its share of the mean over paths and routers. */
MOD__FN void mod__routing_loss(mod__pass *p, mod_tensor *logit, const unsigned char *taken, double weight, int paths,
                               int routers, double *mean)
{
   mod_tensor *bce = mod_bce_logits(p->t, logit, taken, p->tokens);
   if (!bce) return;
   *mean += bce->value / paths / routers;
   mod__add_loss(p, bce, weight / paths / routers);
}

/* How the causal rule would have decided, against what the top-k took. */
MOD__FN void mod__compare(mod__pass *p, double theta, const mod_rows *rows, const mod_tensor *logit,
                          const unsigned char *taken, mod_path_stats *s)
{
   int i;
   s->decided = 1;
   for (i = 0; i < rows->n; ++i) {
      double x = (double)logit->data[i];
      int yes = x > theta;
      if (mod__nan(x)) mod_tape_fail(p->t, MOD_RESULT_NUMERIC, "a deciding logit is NaN", rows->position[i]);
      s->predicted += yes;
      s->hits += yes && taken[i];
      s->agree += yes == taken[i];
   }
}

/* Where a threshold would have to lie: over all rows of the pass, and, as a mean, between the rows of each sequence. */
MOD__FN void mod__find_cutoff(mod__pass *p, int path, const mod__router *r, const mod_rows *rows,
                              const mod_tensor *logit)
{
   int s, k;
   if (p->t->desc.measure || mod__find_nan(logit->data, rows->n) >= 0) return; /* with a NaN the pass fails */
   if (p->calibrated) {
      k = mod__share_of(rows->n, r->share, r->up);
      if (rows->n > 0 && k >= rows->n) p->too_few = 1;
      else if (rows->n > 0) p->calibrated[path] = (double)mod__score_of(mod__kth_key(logit->data, rows->n, k + 1));
   }
   for (s = 0; s < rows->n_seqs && p->cutoff; ++s) {
      int n = rows->start[s + 1] - rows->start[s];
      const mod_real *x = logit->data + rows->start[s];
      double middle;
      k = mod__share_of(n, r->share, r->up);
      if (k >= n || k < 1) continue; /* there is no logit before or after */
      middle = 0.5 * ((double)mod__score_of(mod__kth_key(x, n, k)) + (double)mod__score_of(mod__kth_key(x, n, k + 1)));
      if (!mod__finite(middle)) continue; /* infinite logits are legal, but no threshold to keep */
      p->cutoff[path].sum += middle;
      ++p->cutoff[path].count;
   }
}

/* The scores of a router, x w, and (*logit) what decides causally: the predictor's logits, if it has one. */
MOD__FN mod_tensor *mod__score(mod__pass *p, int l, int which, const mod_rows *rows, mod_tensor *x, mod_tensor **logit)
{
   static const int site[MOD__ROUTERS] = {MOD_SITE_SCORE, MOD_SITE_KV_SCORE, MOD_SITE_EXPERT_SCORE};
   mod_tape *t = p->t;
   mod_tensor *r = *logit = mod_matmul(t, x, mod__weight(p, l, 0, mod__part_of(which, MOD__ROUTER))), *u;
   int i;
   mod__show(p, l, site[which], rows, r);
   for (i = 0; r && !t->desc.measure && i < rows->n; ++i)
      if (mod__find_nan(r->data + (size_t)i * (size_t)mod__cols(r), mod__cols(r)) >= 0) /* of a no-op too */
         mod_tape_fail(t, MOD_RESULT_NUMERIC, "a score is NaN", rows->position[i]);
   if (!r || !mod__router_of(p->c, l, which).predictor) return r;
   /* will the top-k take this row? gelu(u W1 + b1) W2 + b2, u = rmsnorm(stop_grad(x)): x feels nothing of it */
   u = mod_rmsnorm(t, mod_stop_grad(t, x), NULL, p->c->norm_eps);
   u = mod_gelu(t, mod__linear(p, l, 0, u, mod__part_of(which, MOD__PREDICTOR_W1)));
   *logit = mod__linear(p, l, 0, u, mod__part_of(which, MOD__PREDICTOR_W2));
   mod__show(p, l, site[which] + 1, rows, *logit);
   return r;
}

/* What path j of a router takes: in top-k mode its best rows, causally those whose deciding logit is above theta. */
MOD__FN const mod_rows *mod__take_rows(mod__pass *p, int l, int which, int j, const mod_rows *rows, mod_tensor *score,
                                       mod_tensor *logit, mod_path_stats *stats)
{
   mod_tape *t = p->t;
   mod__router r = mod__router_of(p->c, l, which);
   int path = (r.path + j) * p->c->n_layers + l, causal = p->batch->mode == MOD_MODE_CAUSAL;
   double theta = p->model ? p->model->theta[path] : 0;
   const mod_rows *kept;
   unsigned char *taken;
   if (causal && r.decides) {
      kept = mod_rows_threshold(t, rows, logit, theta);
   } else {
      double least = causal ? 0 : p->batch->least_capacity * r.warm_share;
      if (r.share < least) r.share = least;
      kept = mod__rows_select(t, rows, score, r.share, r.up, 0, 0);
   }
   if (!kept) return NULL;
   stats->tokens += rows->n;
   stats->kept += kept->n;
   if (causal || !r.decides) return kept;
   mod__find_cutoff(p, path, &r, rows, logit);
   taken = mod_rows_mask(t, rows, kept);
   if (taken) mod__compare(p, theta, rows, logit, taken, stats);
   if (r.loss)
      mod__routing_loss(p, score, taken, p->c->router_loss, r.paths, p->router_losses, &p->out->router_bce);
   if (r.predictor)
      mod__routing_loss(p, logit, taken, p->c->predictor_loss, r.paths, p->predictors, &p->out->predictor_bce);
   return kept;
}

/* Numbers of a token-choice that a session carries from piece to piece: of the block and its experts. */
MOD__FN int mod__choosable(const mod_config *c) { return 2 + c->n_experts + c->n_noops; }

/* Rows choose among the paths of a router by its scores z; returns softmax(z). The losses: of each sequence, with n
   rows, E sum_e f_e P_e, f_e the share of all choices that want path e of E and P_e the mean of p_e; and the mean of
   (log sum exp z)^2. Sequences count by their rows: the sums over rows are divided by the tokens of the step. */
MOD__FN mod_tensor *mod__let_choose(mod__pass *p, int l, int which, const mod_rows *rows, mod_tensor *z, int choices,
                                    mod_rows **out, int64_t *dropped)
{
   mod_tape *t = p->t;
   mod__router r = mod__router_of(p->c, l, which);
   int slots, s, i, e, causal = p->batch->mode == MOD_MODE_CAUSAL, *taken_slots = NULL, *chosen, *wants;
   size_t paths = (size_t)r.columns;
   mod_tensor *prob = mod_softmax(t, z), *wanted, *term;
   if (p->cache && p->cache->taken_slots)
      taken_slots = p->cache->taken_slots + l * mod__choosable(p->c) + (which == MOD__OF_EXPERTS ? 2 : 0);
   slots = mod__slots(p->c, l, &r, causal ? 0 : p->batch->least_capacity);
   if (!rows || !prob) return NULL;
   chosen = mod__ints(t, (size_t)rows->n_seqs * paths);
   if (!mod_rows_choose(t, rows, z, choices, r.paths, slots, taken_slots, chosen, out)) return NULL;
   for (s = 0, wants = chosen; s < rows->n_seqs && chosen; ++s, wants += paths)
      for (e = 0; e < r.paths; ++e) *dropped += wants[e] - (out[e]->start[s + 1] - out[e]->start[s]);
   if (causal) return prob;
   if ((wanted = mod__zeros(t, prob, r.columns)) == NULL) return NULL;
   for (s = 0, wants = chosen; s < rows->n_seqs && chosen; ++s, wants += paths)
      for (i = rows->start[s]; i < rows->start[s + 1]; ++i) {
         double scale = (double)r.columns / choices / (rows->start[s + 1] - rows->start[s]) / p->tokens;
         for (e = 0; e < r.columns; ++e) wanted->data[(size_t)i * paths + (size_t)e] = (mod_real)(wants[e] * scale);
      }
   term = mod_sum(t, mod_mul(t, prob, wanted));
   if (term && chosen) p->out->balance_loss += (double)term->data[0] / p->balanced;
   mod__add_loss(p, term, p->c->balance_loss / p->balanced);
   term = mod_logsumexp(t, z);
   term = mod_scale(t, mod_sum(t, mod_mul(t, term, term)), 1 / p->tokens);
   if (term && chosen) p->out->z_loss += (double)term->data[0] / p->balanced;
   mod__add_loss(p, term, p->c->z_loss / p->balanced);
   return prob;
}

/* Scores of the controls, which look at no token: uniform in [0, 1), keyed so that batching and chunking do not move
   them; or 1 where a position is taken and 0 where it is not. */
MOD__FN mod_tensor *mod__control_score(mod__pass *p, int l, int which, int select, double capacity)
{
   const mod_rows *rows = p->rows;
   mod_tensor *u;
   uint64_t stream = mod_random_stream(which == MOD__OF_KV ? "select.kv" : "select");
   int s, i, dim[2] = {rows->n, 1}, step = mod__ceil_inverse(capacity), k = mod_route_capacity(p->c->context, capacity);
   stream = mod_random_substream(mod_random_substream(stream, p->batch->step), (uint64_t)l);
   u = mod__output(p->t, 2, dim, rows->ragged ? rows->n_max : 0, NULL, NULL, NULL, NULL);
   if (!u || p->t->desc.measure) return u;
   for (s = 0; s < rows->n_seqs; ++s)
      for (i = rows->start[s]; i < rows->start[s + 1]; ++i) {
         int at = rows->position[i];
         uint64_t bits = mod_random_bits(p->batch->seed, mod_random_substream(stream, p->batch->first_id + (uint64_t)s),
                                         (uint64_t)at);
         u->data[i] = select == MOD_SELECT_STOCHASTIC ? (mod_real)((double)(bits >> 40) / 16777216.0) /* exact */
                      : (mod_real)(select == MOD_SELECT_EVERY ? at % step == 0 : select == MOD_SELECT_FIRST && at < k);
      }
   return u;
}

/* Which rows enter block l (MOD__OF_BLOCK), or are its keys and values (MOD__OF_KV). *score: what to gate them with, or
   NULL. */
MOD__FN const mod_rows *mod__select(mod__pass *p, int l, int which, mod_tensor *x, mod_tensor **score)
{
   mod_tape *t = p->t;
   mod_block_config b = mod__block_of(p->c, l);
   int select = which == MOD__OF_KV ? b.kv_select : b.select, causal = p->batch->mode == MOD_MODE_CAUSAL;
   double c = which == MOD__OF_KV ? b.kv_capacity : b.capacity;
   mod_path_stats stats;
   mod_rows *kept = NULL;
   mod_tensor *r, *logit, *prob;
   int64_t dropped = 0;
   *score = NULL;
   if (!causal && c < p->batch->least_capacity) c = p->batch->least_capacity;
   memset(&stats, 0, sizeof stats);
   switch (select) {
   case MOD_SELECT_ALL: return p->rows;
   case MOD_SELECT_LEARNED: {
      const mod_rows *taken;
      *score = r = mod__score(p, l, which, p->rows, x, &logit);
      taken = mod__take_rows(p, l, which, 0, p->rows, r, logit, &stats);
      if (p->stats && which == MOD__OF_KV) p->stats[l].kv = stats;
      if (p->stats && which == MOD__OF_BLOCK) {
         p->stats[l].decided = stats.decided;
         p->stats[l].predicted = stats.predicted;
         p->stats[l].hits = stats.hits;
         p->stats[l].agree = stats.agree;
      }
      return taken;
   }
   case MOD_SELECT_TOKEN:
      r = mod__score(p, l, which, p->rows, x, &logit);
      if ((prob = mod__let_choose(p, l, which, p->rows, r, 1, &kept, &dropped)) == NULL) return NULL;
      *score = mod_slice(t, prob, 1, 0, 1);
      if (p->stats) p->stats[l].dropped += dropped;
      return kept;
   default:
      r = mod__control_score(p, l, which, select, c);
      if (select == MOD_SELECT_STOCHASTIC)
         mod__show(p, l, which == MOD__OF_KV ? MOD_SITE_KV_SCORE : MOD_SITE_SCORE, p->rows, r);
      if (mod__takes_all(select, c) || (select == MOD_SELECT_STOCHASTIC && !causal))
         return mod_rows_topk(t, p->rows, r, c);
      if (select == MOD_SELECT_STOCHASTIC) return mod_rows_threshold(t, p->rows, r, 1 - c);
      return mod__rows_select(t, p->rows, r, 0, 0, 0, mod__selected(p->c, select, c, p->rows->length_max));
   }
}

/* --- the block's parts --- */

/* In a session: appends the rows that are keys and values of block l now to its cache; *k and *v become all of it,
   whose rows are returned. */
MOD__FN const mod_rows *mod__remember(mod__pass *p, int l, const mod_rows *rows, mod_tensor **k, mod_tensor **v)
{
   const mod__cache *c = p->cache;
   mod_rows *all = *k && *v ? (mod_rows *)mod__describe(p->t, sizeof *all) : NULL;
   mod_real *to_k = NULL, *to_v = NULL;
   int dim[2];
   if (!all) return NULL;
   dim[1] = mod__cols(*k);
   all->n_seqs = 1;
   all->n = all->n_max = all->length_max = c->length;
   if (c->k) {
      int had = c->start[2 * l + 1];
      size_t width = (size_t)dim[1], at = (size_t)l * (size_t)c->length, bytes;
      bytes = (size_t)rows->n * width * sizeof(mod_real);
      all->start = c->start + 2 * l;
      all->position = c->position + at;
      to_k = c->k + at * width;
      to_v = c->v + at * width;
      memcpy(to_k + (size_t)had * width, (*k)->data, bytes);
      memcpy(to_v + (size_t)had * width, (*v)->data, bytes);
      memcpy(all->position + had, rows->position, (size_t)rows->n * sizeof(int));
      all->n = all->n_max = all->start[1] = had + rows->n;
   }
   dim[0] = all->n;
   *k = mod_leaf(p->t, to_k, NULL, 2, dim);
   *v = mod_leaf(p->t, to_v, NULL, 2, dim);
   return all;
}

/* attn(x) = attention(rope(x Wq), rope(y Wk), g * (y Wv)) Wo, of the rows given, at their original positions. y: the
   rows that are keys and values, x itself unless these are selected apart; g: their gate, or NULL. */
MOD__FN mod_tensor *mod__attn(mod__pass *p, int l, mod_tensor *x, const mod_rows *rows, mod_tensor *y,
                              const mod_rows *keys, mod_tensor *g)
{
   mod_tape *t = p->t;
   mod_tensor *q = mod__linear(p, l, 0, x, MOD__WQ);
   mod_tensor *k = mod__linear(p, l, 0, y, MOD__WK);
   mod_tensor *v = mod__linear(p, l, 0, y, MOD__WV);
   if (g) v = mod_mul(t, v, g);
   if (p->rope) {
      q = mod_rope(t, q, rows, p->rope);
      k = mod_rope(t, k, keys, p->rope);
   }
   if (p->cache) keys = mod__remember(p, l, keys, &k, &v);
   if (p->stats && keys) p->stats[l].pairs = mod__pairs(rows, keys, p->c->mask);
   x = mod_attention(t, q, k, v, rows, keys, p->c->n_heads, p->c->n_kv_heads, (mod_mask)p->c->mask);
   return mod__linear(p, l, 0, x, MOD__WO);
}

/* mlp(x) = act(x W1) W2, or (silu(x Wg) * x W1) W2; of experts, number e */
MOD__FN mod_tensor *mod__mlp(mod__pass *p, int l, int e, mod_tensor *x)
{
   mod_tape *t = p->t;
   mod_tensor *u = mod__linear(p, l, e, x, MOD__W1);
   switch (p->c->activation) {
   case MOD_ACTIVATION_RELU: u = mod_relu(t, u); break;
   case MOD_ACTIVATION_SWIGLU: u = mod_mul(t, mod_silu(t, mod__linear(p, l, e, x, MOD__WG)), u); break;
   default: u = mod_gelu(t, u);
   }
   return mod__linear(p, l, e, u, MOD__W2);
}

/* moe(u) = sum over the experts e that take a row of p_e mlp_e(u), p = softmax(s W) over experts and no-ops. s: the
   stream in front of the MLP, which the router reads; u: its norm. */
MOD__FN mod_tensor *mod__moe(mod__pass *p, int l, mod_tensor *s, mod_tensor *u, const mod_rows *rows)
{
   mod_tape *t = p->t;
   mod__router r = mod__router_of(p->c, l, MOD__OF_EXPERTS);
   mod_block_stats *stats = p->stats ? p->stats + l : NULL;
   mod_path_stats decided;
   mod_tensor *logit, *z = mod__score(p, l, MOD__OF_EXPERTS, rows, s, &logit), *prob;
   mod_tensor *sum = mod__zeros(t, u, p->c->d_model);
   mod_rows **chosen = NULL;
   unsigned char *taken; /* was this row taken by any expert? */
   int64_t dropped = 0;
   int e, i;
   memset(&decided, 0, sizeof decided);
   taken = (unsigned char *)mod__zeroed(t, (size_t)rows->n_max, 1);
   if (t->error.code != MOD_RESULT_OK) return NULL;
   if (r.expert_choice) {
      prob = mod_softmax(t, z);
   } else {
      chosen = (mod_rows **)mod__describe(t, (size_t)r.paths * sizeof *chosen);
      prob = chosen ? mod__let_choose(p, l, MOD__OF_EXPERTS, rows, z, p->c->choices, chosen, &dropped) : NULL;
   }
   for (e = 0; e < r.paths && prob && sum; ++e) {
      mod_mark mark = mod_tape_mark(t);
      mod_tensor *score = chosen ? NULL : mod_slice(t, z, 1, e, 1);
      mod_tensor *decide = chosen || logit == z ? score : mod_slice(t, logit, 1, e, 1);
      const mod_rows *kept =
         chosen ? chosen[e] : mod__take_rows(p, l, MOD__OF_EXPERTS, e, rows, score, decide, &decided);
      mod_tensor *weight = mod_gather(t, mod_slice(t, prob, 1, e, 1), kept);
      mod__show(p, l, MOD_SITE_EXPERT_KEPT, kept, NULL);
      if (stats && kept) {
         p->expert_rows[l * p->c->n_experts + e] = kept->n;
         stats->mlp_rows += kept->n;
         for (i = 0; i < kept->n; ++i) taken[kept->index[i]] = 1;
      }
      sum = mod__move(p, mark, sum, mod__scatter_into(t, sum, mod__mlp(p, l, e, mod_gather(t, u, kept)), weight, kept));
   }
   if (stats) {
      stats->experts = decided;
      for (i = 0; i < rows->n && r.expert_choice; ++i) dropped += !taken[i];
      stats->dropped += dropped;
   }
   return prob ? sum : NULL;
}

/* Counts and shows who entered block l, and who is key and value there. */
MOD__FN void mod__count_rows(mod__pass *p, int l, const mod_rows *kept, const mod_rows *keys)
{
   mod_block_stats *s;
   int i;
   if (p->t->desc.measure || p->t->error.code != MOD_RESULT_OK) return;
   s = p->stats + l;
   s->routed = kept->parent != NULL;
   s->tokens = p->rows->n;
   s->kept = kept->n;
   s->keys = keys->n;
   for (i = 0; i < kept->n_seqs; ++i)
      p->kept[(size_t)l * (size_t)kept->n_seqs + (size_t)i] = kept->start[i + 1] - kept->start[i];
   for (i = 0; s->routed && i < kept->n; ++i) p->entered[kept->index[i]] = 1;
   mod__show(p, l, MOD_SITE_KEPT, kept, NULL);
   if (keys != kept) mod__show(p, l, MOD_SITE_KV_KEPT, keys, NULL);
}

/* *u = norm1(s), s the rows `kept` of x; *v = the same of the rows `keys`. Where these are others, x is normalised once
   and then gathered: one op then feeds the gain's gradient, so that micro-batches add up to the bit. Where both are
   everybody it is done as in a dense block, to have its bits. */
MOD__FN void mod__norm1(mod__pass *p, int l, mod_tensor *x, mod_tensor *s, const mod_rows *kept, const mod_rows *keys,
                        mod_tensor **u, mod_tensor **v)
{
   mod_block_config b = mod__block_of(p->c, l);
   mod_tensor *all;
   if (keys == kept || (mod__takes_all(b.select, b.capacity) && mod__takes_all(b.kv_select, b.kv_capacity))) {
      *u = *v = mod__norm_of(p, l, s, MOD__NORM1_GAIN);
   } else {
      all = mod__norm_of(p, l, x, MOD__NORM1_GAIN);
      *u = mod_gather(p->t, all, kept);
      *v = mod_gather(p->t, all, keys);
   }
}

/* g(r) of the rows `kept`; NULL: no score, no gate. */
MOD__FN mod_tensor *mod__gate_of(mod__pass *p, mod_tensor *r, const mod_rows *kept, int kind)
{
   return r ? mod_gate(p->t, mod_gather(p->t, r, kept), (mod_gate_kind)kind, p->c->gate_scale) : NULL;
}

/* y_i += a tanh(r_i) x_i for the rows that are not in `kept`. While the capacity is warmed up these may be any number,
   so that a plan for its beginning holds to its end. */
MOD__FN mod_tensor *mod__gated_bypass(mod__pass *p, int l, mod_tensor *x, mod_tensor *y, mod_tensor *r,
                                      const mod_rows *kept)
{
   mod_tape *t = p->t;
   int decides = p->batch->mode == MOD_MODE_CAUSAL && mod__router_of(p->c, l, MOD__OF_BLOCK).decides;
   const mod_rows *others = mod__rows_others(t, p->rows, kept, !decides && !(p->batch->least_capacity > 0));
   mod_tensor *g = mod_scale(t, mod_tanh(t, mod_gather(t, r, others)), p->c->gate_scale);
   return mod_scatter_add(t, y, mod_gather(t, x, others), g, others);
}

/* The block, dense or routed: y_i = x_i + g(r_i) (h_i + m_i) for the rows it takes, y_i = x_i for all others. */
MOD__FN mod_tensor *mod__block(mod__pass *p, int l, mod_tensor *x)
{
   mod_tape *t = p->t;
   mod_block_config b = mod__block_of(p->c, l);
   mod_tensor *r, *r_kv = NULL, *s, *u, *v, *h, *m, *y;
   const mod_rows *kept, *keys;
   mod__show(p, l, MOD_SITE_INPUT, p->rows, x);
   keys = kept = mod__select(p, l, MOD__OF_BLOCK, x, &r);
   if (b.kv_select != MOD_SELECT_SAME) keys = mod__select(p, l, MOD__OF_KV, x, &r_kv);
   if (!kept || !keys) return NULL;
   mod__count_rows(p, l, kept, keys);

   s = mod_gather(t, x, kept);
   mod__norm1(p, l, x, s, kept, keys, &u, &v);
   h = mod__attn(p, l, u, kept, v, keys, mod__gate_of(p, r_kv, keys, b.kv_gate));
   h = mod__with_dropout(p, l, 0, h, kept);
   s = mod_add(t, s, h);
   u = mod__norm_of(p, l, s, MOD__NORM2_GAIN);
   m = b.mlp == MOD_MLP_PLAIN ? mod__mlp(p, l, 0, u) : mod__moe(p, l, s, u, kept);
   m = mod__with_dropout(p, l, 1, m, kept);
   y = mod_scatter_add(t, x, mod_add(t, h, m), mod__gate_of(p, r, kept, b.gate), kept);
   if (b.select == MOD_SELECT_LEARNED && p->c->bypass == MOD_BYPASS_GATED) y = mod__gated_bypass(p, l, x, y, r, kept);

   if (p->stats && b.mlp == MOD_MLP_PLAIN) p->stats[l].mlp_rows = kept->n;
   mod__show(p, l, MOD_SITE_ATTENTION, kept, h);
   mod__show(p, l, MOD_SITE_MLP, kept, m);
   mod__show(p, l, MOD_SITE_OUTPUT, p->rows, y);
   return y;
}

/* tokens or targets of the real rows, one after the other; refuses what is not in [low, vocab_size) */
MOD__FN const int *mod__pack(mod__pass *p, const int *from, int low, const char *message)
{
   const mod_rows *rows = p->rows;
   int s, i, *to = rows ? mod__ints(p->t, (size_t)rows->n_max) : NULL;
   if (!to) return NULL;
   for (s = 0; s < rows->n_seqs; ++s)
      for (i = rows->start[s]; i < rows->start[s + 1]; ++i) {
         int at = s * p->batch->length + rows->position[i] - p->first, id = from[at];
         if (id < low || id >= p->c->vocab_size) {
            mod_tape_fail(p->t, MOD_RESULT_RANGE, message, at);
            return NULL;
         }
         to[i] = id;
      }
   return to;
}

/* The float rows of the real tokens. */
MOD__FN mod_tensor *mod__pack_inputs(mod__pass *p)
{
   const mod_rows *rows = p->rows;
   size_t n = (size_t)p->c->n_inputs, j;
   mod_tensor *x;
   int s, i, dim[2];
   if (!rows) return NULL;
   dim[0] = rows->n;
   dim[1] = p->c->n_inputs;
   x = mod__output(p->t, 2, dim, rows->ragged ? rows->n_max : 0, NULL, NULL, NULL, NULL);
   for (s = 0; x && s < rows->n_seqs && !p->t->desc.measure; ++s)
      for (i = rows->start[s]; i < rows->start[s + 1]; ++i) {
         int at = s * p->batch->length + rows->position[i] - p->first;
         const mod_real *from = p->batch->inputs + (size_t)at * n;
         for (j = 0; j < n; ++j)
            if (!mod__finite((double)from[j]))
               return mod__refuse(p->t, MOD_RESULT_NUMERIC, "an input is not finite", at);
         memcpy(x->data + (size_t)i * n, from, n * sizeof *from);
      }
   return x;
}

/* mean over targets, or over values, of the loss; *n_targets: how many there are */
MOD__FN mod_tensor *mod__objective(mod__pass *p, mod_tensor *logits, const int *targets, int64_t *n_targets)
{
   mod_tape *t = p->t;
   const mod_batch *b = p->batch;
   mod_tensor *y;
   int i, n;
   if (!logits) return NULL;
   n = logits->dim[0];
   if (p->c->head == MOD_HEAD_REGRESSION) {
      *n_targets = (int64_t)mod__count(logits);
      y = mod_sub(t, logits, mod_leaf(t, (mod_real *)(uintptr_t)b->values, NULL, 2, logits->dim));
      y = mod_sum(t, mod_mul(t, y, y));
      y = mod_scale(t, y, 1 / (double)(b->n_targets ? b->n_targets : *n_targets));
      if (y && !t->desc.measure) p->out->cross_entropy = (double)y->data[0];
      return y;
   }
   for (i = 0; i < n && !t->desc.measure; ++i) *n_targets += targets[i] >= 0;
   y = mod_cross_entropy(t, logits, targets, (double)b->n_targets);
   if (y) p->out->cross_entropy = y->value;
   return y;
}

/* x = embed(tokens) [+ positions]; x = block(x) ...; logits = norm(x) E^T; loss */
MOD__FN void mod__forward(mod__pass *p)
{
   mod_tape *t = p->t;
   const mod_config *c = p->c;
   const mod_batch *b = p->batch;
   mod_forward *out = p->out;
   const int *ids = NULL, *targets = NULL;
   mod_tensor *x, *loss;
   int l, i, which, pooled = c->head >= MOD_HEAD_CLASS, any = 0, experts = 0;
   size_t layers = (size_t)c->n_layers;
   double flops;

   for (l = 0; l < c->n_layers; ++l) {
      for (which = 0; which < MOD__ROUTERS; ++which) {
         mod__router r = mod__router_of(c, l, which);
         p->router_losses += r.loss;
         p->predictors += r.predictor;
         p->balanced += r.columns > 0 && !r.expert_choice;
         if (which == MOD__OF_EXPERTS && r.columns) experts = c->n_experts;
      }
      any |= mod__block_of(c, l).select != MOD_SELECT_ALL;
   }
   p->rows = mod_rows_make(t, b->n_seqs, b->length, b->lengths);
   for (i = 0; p->rows && !t->desc.measure && i < p->rows->n; ++i) p->rows->position[i] += p->first;
   if (!c->n_inputs) ids = mod__pack(p, b->tokens, 0, "a token is outside the vocabulary");
   if (pooled) targets = b->targets;
   else if (b->targets) targets = mod__pack(p, b->targets, -1, "a target is outside the vocabulary, and not -1");
   if (!p->rows) return;
   p->stats = (mod_block_stats *)mod__zeroed(t, layers, sizeof *p->stats);
   p->kept = mod__ints(t, layers * (size_t)b->n_seqs);
   p->entered = (unsigned char *)mod__zeroed(t, (size_t)p->rows->n_max, 1);
   p->expert_rows = mod__ints(t, layers * (size_t)experts);
   if (t->error.code != MOD_RESULT_OK) return;
   p->tokens = b->n_tokens > 0 ? (double)b->n_tokens : p->rows->n > 0 ? (double)p->rows->n : 1;

   flops = t->flops;
   x = c->n_inputs ? mod__linear(p, -1, 0, mod__pack_inputs(p), MOD__INPUT)
                   : mod__embedding(t, mod__weight(p, -1, 0, MOD__EMBED), ids, p->rows->n,
                                    p->rows->ragged ? p->rows->n_max : 0);
   out->flops_head = t->flops - flops;
   if (c->position == MOD_POSITION_LEARNED)
      x = mod_add(t, x, mod__embedding(t, mod__weight(p, -1, 0, MOD__POSITION), p->rows->position, p->rows->n,
                                       p->rows->ragged ? p->rows->n_max : 0));
   else
      p->rope = mod_rope_table(t, p->first, b->length, c->d_model / c->n_heads, c->rope_base);
   x = mod__with_dropout(p, -1, 0, x, p->rows);

   flops = t->flops;
   for (l = 0; l < c->n_layers && x; ++l) {
      mod_mark mark = mod_tape_mark(t);
      x = mod__move(p, mark, x, mod__block(p, l, x));
      if (!x) t->error.block = l;
   }
   out->flops_blocks = t->flops - flops;

   flops = t->flops;
   if (p->cache) x = mod_slice(t, x, 0, b->length - 1, 1);
   x = mod__norm_of(p, -1, x, MOD__NORM_GAIN);
   if (pooled && !p->cache) x = mod_pool(t, x, p->rows, c->mask == MOD_MASK_FULL ? MOD_POOL_MEAN : MOD_POOL_LAST);
   out->logits = c->head == MOD_HEAD_TIED ? mod_matmul_nt(t, x, mod__weight(p, -1, 0, MOD__EMBED))
                                          : mod__linear(p, -1, 0, x, MOD__HEAD);
   out->flops_head += t->flops - flops;
   mod__show(p, c->n_layers, MOD_SITE_LOGITS, p->rows, out->logits);
   if (c->head == MOD_HEAD_REGRESSION ? b->values != NULL : b->targets != NULL) {
      loss = mod__objective(p, out->logits, targets, &out->n_targets);
      if (p->grads) out->loss = p->loss && loss ? mod_add(t, loss, p->loss) : loss;
   }
   out->rows = p->rows;
   out->pooled = pooled;
   out->blocks = p->stats;
   out->kept = p->kept;
   out->expert_rows = experts ? p->expert_rows : NULL;
   if (t->desc.measure || t->error.code != MOD_RESULT_OK) return;
   out->n_tokens = p->rows->n;
   for (i = 0; i < p->rows->n; ++i) out->skipped += any && !p->entered[i];
}

/* What is wrong with a batch's shape, or NULL. */
MOD__FN const char *mod__batch_complaint(const mod_batch *b, const mod_config *c)
{
   if (!b) return "the batch is NULL";
   if (b->n_seqs < 1 || b->length < 1 || b->n_seqs > MOD__MAX_ROWS / b->length)
      return "a batch needs n_seqs and length of at least 1, and their product at most 2^24";
   if (b->length > c->context) return "the batch is longer than the model's context";
   if (b->mode != MOD_MODE_TOPK && b->mode != MOD_MODE_CAUSAL) return "mode is no mod_mode";
   if (b->mode == MOD_MODE_CAUSAL && c->mask == MOD_MASK_FULL) return "a model that is not causal has no causal mode";
   if (b->n_targets < 0 || b->n_tokens < 0) return "n_targets and n_tokens must not be negative";
   if (!(b->least_capacity >= 0 && b->least_capacity <= 1)) return "least_capacity must be in [0, 1]";
   if (!(b->dropout >= 0 && b->dropout < 1)) return "dropout must be in [0, 1)";
   return NULL;
}

/* With what a forward pass may note beside its result, in *p. */
MOD__FN mod_result mod__forward_on(mod__pass *p, const mod_model *model, mod_tape *tape, mod_real *grads,
                                   const mod_batch *batch, mod_forward *out, mod_error *err)
{
   mod_forward result;
   const char *complaint;
   if (!model || !tape || !out) return mod__bad(err, "model, tape or out is NULL");
   if ((complaint = mod__batch_complaint(batch, &model->config)) != NULL) return mod__bad(err, complaint);
   if (model->config.n_inputs ? !batch->inputs : !batch->tokens)
      return mod__bad(err, model->config.n_inputs ? "the batch has no inputs" : "the batch has no tokens");
   if (tape->desc.measure) return mod__bad(err, "the tape is a measuring one: use mod_forward_plan");
   memset(&result, 0, sizeof result);
   p->model = model;
   p->c = &model->config;
   p->grads = tape->desc.forward_only ? NULL : grads;
   p->t = tape;
   p->batch = batch;
   p->out = &result;
   mod__forward(p);
   if (tape->error.code == MOD_RESULT_OK) *out = result;
   return mod_tape_status(tape, err);
}

MODDEF mod_result mod_model_forward(const mod_model *model, mod_tape *tape, mod_real *grads, const mod_batch *batch,
                                    mod_forward *out, mod_error *err)
{
   mod__pass p;
   memset(&p, 0, sizeof p);
   return mod__forward_on(&p, model, tape, grads, batch, out, err);
}

/* The same code on a measuring tape. c is resolved and checked. */
MOD__FN mod_result mod__forward_bytes(const mod_config *c, const mod_batch *shape, const mod_tape_desc *desc,
                                      const mod__cache *cache, size_t *bytes, mod_error *err)
{
   union { double align; void *pointer; unsigned char bytes[MOD__STUB_BYTES]; } stub;
   mod_tape_desc d;
   mod_tape *t;
   mod__pass p;
   mod_forward out;
   memset(&d, 0, sizeof d);
   if (desc) d = *desc;
   d.measure = 1;
   if ((t = mod_tape_init(&d, stub.bytes, sizeof stub.bytes, err)) == NULL) return MOD_RESULT_ARG;
   memset(&p, 0, sizeof p);
   memset(&out, 0, sizeof out);
   p.c = c;
   p.grads = d.forward_only ? NULL : (mod_real *)(void *)t; /* a mark, as for every gradient of a measuring tape */
   p.t = t;
   p.batch = shape;
   p.out = &out;
   p.cache = cache;
   mod__forward(&p);
   if (out.loss) mod_tape_backward(t, out.loss, NULL);
   if (t->error.code == MOD_RESULT_OK) *bytes = t->arena.peak;
   return mod_tape_status(t, err);
}

MODDEF mod_result mod_forward_plan(const mod_config *cfg, const mod_batch *shape, const mod_tape_desc *desc,
                                   size_t *bytes, mod_error *err)
{
   mod_config c;
   mod_result result = mod__settle(cfg, &c, err);
   const char *complaint;
   if (result != MOD_RESULT_OK) return result;
   if (!bytes) return mod__bad(err, "bytes is NULL");
   if ((complaint = mod__batch_complaint(shape, &c)) != NULL) return mod__bad(err, complaint);
   return mod__forward_bytes(&c, shape, desc, NULL, bytes, err);
}

MODDEF mod_result mod_forward_logits(const mod_forward *forward, const mod_batch *batch, mod_real *out, mod_error *err)
{
   const mod_rows *rows;
   size_t vocab, s, length;
   if (!forward || !batch || !out || !forward->logits || !forward->rows)
      return mod__bad(err, "forward, batch or out is NULL, or the forward pass has not succeeded");
   rows = forward->rows;
   if (rows->n_seqs != batch->n_seqs || rows->length_max != batch->length || forward->pooled)
      return mod__error(err, MOD_RESULT_SHAPE, forward->pooled
                        ? "the logits are of sequences, not of tokens: read them in forward->logits"
                        : "the batch is not the one of the forward pass", -1, -1);
   vocab = (size_t)mod__cols(forward->logits);
   length = (size_t)batch->length;
   for (s = 0; s < (size_t)rows->n_seqs; ++s) {
      size_t n = (size_t)(rows->start[s + 1] - rows->start[s]);
      mod_real *to = out + s * length * vocab;
      memcpy(to, forward->logits->data + (size_t)rows->start[s] * vocab, n * vocab * sizeof *to);
      memset(to + n * vocab, 0, (length - n) * vocab * sizeof *to);
   }
   return mod__ok(err);
}

MODDEF mod_result mod_model_calibrate(mod_model *model, mod_tape *tape, const mod_batch *batch, mod_error *err)
{
   mod__pass p;
   mod_batch b;
   mod_forward out;
   mod_result result;
   const char *complaint;
   size_t bytes;
   if (!model || !batch) return mod__bad(err, "model or batch is NULL");
   bytes = mod__thetas(model) * sizeof *model->theta;
   memcpy(model->measured, model->theta, bytes);
   memset(&p, 0, sizeof p);
   memset(&out, 0, sizeof out);
   p.calibrated = model->measured;
   b = *batch;
   b.mode = MOD_MODE_TOPK;
   if ((complaint = mod__batch_complaint(&b, &model->config)) != NULL) return mod__bad(err, complaint);
   b.dropout = b.least_capacity = 0;
   if ((result = mod__forward_on(&p, model, tape, NULL, &b, &out, err)) != MOD_RESULT_OK) return result;
   if (p.too_few || out.n_tokens == 0) return mod__bad(err, "there are too few tokens to calibrate on");
   memcpy(model->theta, model->measured, bytes);
   return result;
}

/* =================================================================================================================
   >>account  FLOPs by formula
   ================================================================================================================= */

/* What a block does in top-k mode to a sequence of n tokens, as far as its slots say. */
MOD__FN mod_block_stats mod__by_slots(const mod_config *c, int l, int n)
{
   mod_block_config b = mod__block_of(c, l);
   mod__router r = mod__router_of(c, l, MOD__OF_EXPERTS);
   mod_block_stats s;
   int k = mod__selected(c, b.select, b.capacity, n), keys;
   keys = b.kv_select == MOD_SELECT_SAME ? k : mod__selected(c, b.kv_select, b.kv_capacity, n);
   memset(&s, 0, sizeof s);
   s.tokens = n;
   s.kept = s.mlp_rows = k;
   s.keys = keys;
   s.pairs = c->mask == MOD_MASK_FULL ? (int64_t)k * keys : (int64_t)k * (keys + 1) / 2;
   if (r.columns && r.expert_choice) s.mlp_rows = (int64_t)r.paths * mod_route_slots(k, r.share);
   if (r.columns && !r.expert_choice)
      s.mlp_rows = mod__min(r.paths * mod__min(k, mod__slots(c, l, &r, 0)), k * mod__min(c->choices, r.paths));
   return s;
}

MODDEF mod_result mod_config_flops(const mod_config *cfg, int n_seqs, const int *lengths,
                                   const mod_block_stats *blocks, mod_flops *out, mod_error *err)
{
   mod_config c;
   mod_result result = mod__settle(cfg, &c, err);
   mod_flops f = {0, 0, 0};
   int l, s, which;
   double d, kv, mlp, n, all = 0;
   if (result != MOD_RESULT_OK) return result;
   if (n_seqs < 1 || !lengths || !out) return mod__bad(err, "n_seqs must be at least 1, lengths and out not NULL");
   for (s = 0; s < n_seqs; ++s) {
      if (lengths[s] < 0 || lengths[s] > c.context)
         return mod__error(err, MOD_RESULT_ARG, "a length is negative or above the context", -1, s);
      all += lengths[s];
   }
   d = c.d_model;
   kv = d / c.n_heads * c.n_kv_heads;
   mlp = 2 * d * c.d_ff * (c.activation == MOD_ACTIVATION_SWIGLU ? 3 : 2);
   for (l = 0; l < c.n_layers; ++l)
      for (s = 0; s < (blocks ? 1 : n_seqs); ++s) {
         mod_block_stats b = blocks ? blocks[l] : mod__by_slots(&c, l, lengths[s]);
         if (b.kept < 0 || (double)b.kept > all || b.keys < 0 || (double)b.keys > all || b.pairs < 0 || b.mlp_rows < 0)
            return mod__error(err, MOD_RESULT_ARG, "a count is negative or above the tokens", l, -1);
         n = blocks ? all : lengths[s];
         f.blocks += 4 * d * d * (double)b.kept + 4 * d * kv * (double)b.keys + 4 * d * (double)b.pairs +
                     mlp * (double)b.mlp_rows;
         for (which = 0; which < MOD__ROUTERS; ++which) {
            mod__router r = mod__router_of(&c, l, which);
            double rows = which == MOD__OF_EXPERTS ? (double)b.kept : n;
            f.blocks += 2 * rows * d * r.columns;
            if (r.predictor) f.blocks += 2 * rows * (d + r.paths) * mod__max(16, c.d_model / 4);
         }
      }
   f.head = 2 * d * c.n_inputs * all + (c.head >= MOD_HEAD_CLASS ? 2 * d * c.n_outputs * n_seqs
                                                                 : 2 * d * c.vocab_size * all);
   f.total = f.blocks + f.head;
   *out = f;
   return mod__ok(err);
}

MODDEF mod_result mod_config_match(const mod_config *cfg, double flops, mod_config *out, mod_error *err)
{
   mod_config c = mod_config_resolve(cfg);
   mod_flops f = {0, 0, 0}, other;
   mod_result result;
   int d_ff = c.d_ff, step = d_ff > 16 ? -16 : 16; /* from there to a d_ff that is legal too */
   double steps;
   if (c.blocks || !out || !(flops > 0)) return mod__bad(err, "blocks must be NULL, out not, and flops above 0");
   c.n_layers = 0;
   do {
      other = f;
      ++c.n_layers;
      result = mod_config_flops(&c, 1, &c.context, NULL, &f, err);
   } while (result == MOD_RESULT_OK && f.total < flops && c.n_layers < MOD__MAX_LAYERS);
   if (result != MOD_RESULT_OK) return result;
   if (c.n_layers > 1 && flops - other.total < f.total - flops) {
      --c.n_layers;
      f = other;
   }
   c.d_ff = d_ff + step;
   result = mod_config_flops(&c, 1, &c.context, NULL, &other, err);
   if (result != MOD_RESULT_OK) return result;
   steps = floor((flops - f.total) / (other.total - f.total) + 0.5);
   if (!(fabs(16 * steps) < d_ff))
      return mod__bad(err, "no number of blocks of this width has so few or so many FLOPs");
   c.d_ff = d_ff + step * (int)steps;
   result = mod_config_check(&c, err);
   if (result != MOD_RESULT_OK) return result;
   *out = *cfg;
   out->n_layers = c.n_layers;
   out->d_ff = c.d_ff;
   return result;
}

/* =================================================================================================================
   >>train  AdamW, clip groups, schedule, gradient accumulation
   ================================================================================================================= */

MODDEF mod_train_desc mod_train_resolve(const mod_train_desc *how, const mod_config *cfg)
{
   mod_train_desc d;
   memset(&d, 0, sizeof d);
   if (how) d = *how;
   d.n_seqs = mod__or(d.n_seqs, 8);
   d.length = mod__or(d.length, cfg ? cfg->context : 0);
   d.steps = mod__or(d.steps, 1000);
   d.lr = mod__or_real(d.lr, 1e-3);
   d.lr_min = mod__or_real(d.lr_min, d.lr / 10);
   d.beta1 = mod__or_real(d.beta1, 0.9);
   d.beta2 = mod__or_real(d.beta2, 0.95);
   d.eps = mod__or_real(d.eps, 1e-8);
   d.n_threads = mod__or(d.n_threads, 1);
   return d;
}

MOD__FN const char *mod__train_complaint(const mod_train_desc *d)
{
   if (d->steps < 1) return "steps must be at least 1 (mod_train_resolve fills in defaults)";
   if (d->warmup < 0) return "warmup must not be negative";
   if (!mod__positive(d->lr)) return "lr must be above 0";
   if (!mod__positive(d->lr_min) || d->lr_min > d->lr) return "lr_min must be in (0, lr]";
   if (!(d->beta1 > 0 && d->beta1 <= 0.999999) || !(d->beta2 > 0 && d->beta2 <= 0.999999))
      return "beta1 and beta2 must be in (0, 0.999999]";
   if (!mod__positive(d->eps)) return "eps must be above 0";
   if (d->lr > 1e3) return "lr must be at most 1000";
   if (!(d->weight_decay >= 0 && d->weight_decay <= 1e3)) return "weight_decay must be in [0, 1000]";
   if (!(d->clip_norm >= 0) || !mod__finite(d->clip_norm)) return "clip_norm must not be negative";
   if (!(d->dropout >= 0 && d->dropout < 1)) return "dropout must be in [0, 1)";
   if (d->capacity_warmup < 0) return "capacity_warmup must not be negative";
   if (!(d->threshold_decay >= 0 && d->threshold_decay < 1)) return "threshold_decay must be in [0, 1)";
   return NULL;
}

/* lr (step + 1) / warmup, then a half cosine from lr to lr_min over the steps that remain */
MODDEF double mod_train_lr(const mod_train_desc *how, int64_t step)
{
   double progress, sine, cosine;
   if (!how || step < 0 || !(how->steps > 0)) return 0;
   if (step < how->warmup) return how->lr * (double)(step + 1) / how->warmup;
   if (step >= how->steps) return how->lr_min;
   progress = ((double)step - how->warmup) / ((double)how->steps - how->warmup);
   mod__sincos64(3.141592653589793 * progress, &sine, &cosine);
   return how->lr_min + (how->lr - how->lr_min) * 0.5 * (1 + cosine);
}

struct mod_trainer {
   mod_allocator allocator; /* of mod_trainer_create */
   mod_model *model;
   mod_train_desc desc; /* resolved */
   mod_real *grads, *m, *v; /* flat, like the parameters */
   mod_tape *tape;
   size_t fixed; /* bytes before the tape */
   int64_t step;
   double beta1_power, beta2_power; /* beta^steps, as running products */
   uint64_t sequences;              /* accumulated for the next update, with these: */
   mod_step_info sums;              /* the losses */
   mod__cutoff *cutoff, *noted; /* [paths][n_layers] of the update, and of one micro-batch, which may fail yet */
   mod_forward forward;
   int has_forward;
};

/* Bytes of the training tape. d is resolved. */
MOD__FN mod_result mod__activation_bytes(const mod_config *c, const mod_train_desc *d, size_t *bytes, mod_error *err)
{
   mod_batch shape;
   const mod_tape_desc tape = mod__threads(d->n_threads, d->simd, d->jobs);
   const char *complaint = mod__train_complaint(d);
   static const int some_target = 0;
   static const mod_real some_value = 0;
   if (complaint) return mod__bad(err, complaint);
   memset(&shape, 0, sizeof shape);
   shape.n_seqs = d->n_seqs;
   shape.length = d->length;
   shape.targets = &some_target;
   shape.values = &some_value;
   shape.dropout = d->dropout;
   shape.least_capacity = d->capacity_warmup > 0;
   if ((complaint = mod__batch_complaint(&shape, c)) != NULL) return mod__bad(err, complaint);
   return mod__forward_bytes(c, &shape, &tape, NULL, bytes, err);
}

/* One walk over a trainer's memory, up to the tape. */
MOD__FN mod_result mod__trainer_layout(size_t n_params, size_t thetas, mod_arena *a, mod_trainer **out, mod_error *err)
{
   mod_trainer t, *trainer;
   int fits = 1;
   memset(&t, 0, sizeof t);
   trainer = (mod_trainer *)mod__push(a, 1, sizeof t, &fits);
   t.cutoff = (mod__cutoff *)mod__push(a, 2 * thetas, sizeof *t.cutoff, &fits);
   t.grads = (mod_real *)mod__push(a, n_params, sizeof *t.grads, &fits);
   t.m = (mod_real *)mod__push(a, n_params, sizeof *t.m, &fits);
   t.v = (mod_real *)mod__push(a, n_params, sizeof *t.v, &fits);
   if (!fits) return mod__too_small(err);
   if (!a->base) return mod__ok(err);
   memset(a->base, 0, a->used);
   t.noted = t.cutoff + thetas;
   t.fixed = a->used;
   *trainer = t;
   *out = trainer;
   return mod__ok(err);
}

MODDEF mod_result mod_model_plan(const mod_config *cfg, const mod_train_desc *how, mod_plan *plan, mod_error *err)
{
   mod_config c;
   mod_train_desc d;
   mod_plan p;
   mod_arena a = mod__counter(), b = mod__counter();
   size_t thetas;
   int n_tensors;
   mod_result result = mod__settle(cfg, &c, err);
   if (result != MOD_RESULT_OK) return result;
   if (!plan) return mod__bad(err, "plan is NULL");
   memset(&p, 0, sizeof p);
   d = mod_train_resolve(how, &c);
   if ((result = mod__model_layout(&c, &a, NULL, err)) != MOD_RESULT_OK) return result;
   mod__enumerate(&c, NULL, NULL, &p.n_params, &n_tensors);
   p.model = a.used;
   p.params = p.grads = p.n_params * sizeof(mod_real);
   p.optimizer = 2 * p.params;
   if ((result = mod__activation_bytes(&c, &d, &p.activations, err)) != MOD_RESULT_OK) return result;
   thetas = (size_t)mod_config_paths(&c) * (size_t)c.n_layers;
   if ((result = mod__trainer_layout(p.n_params, thetas, &b, NULL, err)) != MOD_RESULT_OK) return result;
   if (!mod__add_size(&p.trainer, b.used, p.activations))
      return mod__error(err, MOD_RESULT_MEMORY, "the trainer is too large for this machine's addresses", -1, -1);
   *plan = p;
   return mod__ok(err);
}

MODDEF mod_trainer *mod_trainer_init(mod_model *model, const mod_train_desc *how, void *memory, size_t size,
                                     mod_error *err)
{
   mod_train_desc d;
   mod_tape_desc tape;
   mod_arena a;
   mod_trainer *tr = NULL;
   size_t activations;
   void *tape_memory;
   if (!model || !memory) return mod__bad(err, "model or memory is NULL"), (mod_trainer *)NULL;
   d = mod_train_resolve(how, &model->config);
   if (mod__activation_bytes(&model->config, &d, &activations, err) != MOD_RESULT_OK ||
       mod_arena_init(&a, memory, size, err) != MOD_RESULT_OK ||
       mod__trainer_layout(model->n_params, mod__thetas(model), &a, &tr, err) != MOD_RESULT_OK ||
       mod_arena_push(&a, 1, activations, &tape_memory, err) != MOD_RESULT_OK)
      return NULL;
   tape = mod__threads(d.n_threads, d.simd, d.jobs);
   tr->model = model;
   tr->desc = d;
   tr->beta1_power = tr->beta2_power = 1;
   tr->tape = mod_tape_init(&tape, tape_memory, activations, err);
   return tr->tape ? tr : NULL;
}

MODDEF mod_trainer *mod_trainer_create(mod_model *model, const mod_train_desc *how, const mod_allocator *allocator,
                                       mod_error *err)
{
   mod_allocator chosen;
   mod_plan plan;
   void *memory;
   if (!model) return mod__bad(err, "model is NULL"), (mod_trainer *)NULL;
   if (mod_model_plan(&model->config, how, &plan, err) != MOD_RESULT_OK) return NULL;
   if ((memory = mod__allocate(&chosen, allocator, plan.trainer, err)) == NULL) return NULL;
   return (mod_trainer *)mod__created(mod_trainer_init(model, how, memory, plan.trainer, err), memory, &chosen);
}

MODDEF void mod_trainer_destroy(mod_trainer *trainer) { mod__destroy(trainer); }

MODDEF const mod_forward *mod_trainer_forward(const mod_trainer *trainer)
{
   return trainer && trainer->has_forward ? &trainer->forward : NULL;
}

MODDEF int64_t mod_trainer_step(const mod_trainer *trainer) { return trainer ? trainer->step : 0; }

MODDEF mod_real *mod_trainer_grads(mod_trainer *trainer, size_t *count)
{
   if (count) *count = trainer ? trainer->model->n_params : 0;
   return trainer ? trainer->grads : NULL;
}

MODDEF size_t mod_trainer_peak(const mod_trainer *trainer)
{
   return trainer ? trainer->fixed + mod_tape_peak(trainer->tape) : 0;
}

/* Forgets what has been accumulated for the next update. */
MOD__FN void mod__discard(mod_trainer *tr)
{
   memset(tr->grads, 0, tr->model->n_params * sizeof *tr->grads);
   memset(tr->cutoff, 0, mod__thetas(tr->model) * sizeof *tr->cutoff);
   memset(&tr->sums, 0, sizeof tr->sums);
   tr->sequences = 0;
}

MODDEF mod_result mod_train_accumulate(mod_trainer *tr, const mod_batch *batch, mod_error *err)
{
   mod_batch b;
   mod__pass p;
   mod_result result;
   double loss;
   size_t thetas, i;
   if (!tr || !batch) return mod__bad(err, "trainer or batch is NULL");
   thetas = mod__thetas(tr->model);
   if (tr->model->config.head == MOD_HEAD_REGRESSION ? !batch->values : !batch->targets)
      return mod__bad(err, "training needs targets, or of a regression values");
   if (batch->mode != MOD_MODE_TOPK) return mod__bad(err, "training runs in top-k mode");
   b = *batch;
   b.seed = tr->desc.seed;
   b.step = (uint64_t)tr->step;
   b.first_id = tr->sequences;
   b.dropout = tr->desc.dropout;
   b.least_capacity = tr->step < tr->desc.capacity_warmup ? 1 - (double)tr->step / tr->desc.capacity_warmup : 0;
   mod_tape_reset(tr->tape);
   tr->has_forward = 0;
   memset(&p, 0, sizeof p);
   p.cutoff = tr->desc.threshold_decay > 0 ? tr->noted : NULL;
   memset(tr->noted, 0, thetas * sizeof *tr->noted);
   result = mod__forward_on(&p, tr->model, tr->tape, tr->grads, &b, &tr->forward, err);
   if (result == MOD_RESULT_NUMERIC) mod__discard(tr);
   if (result != MOD_RESULT_OK) return result;
   loss = tr->forward.cross_entropy + tr->forward.router_bce + tr->forward.predictor_bce + tr->forward.balance_loss +
          tr->forward.z_loss;
   if (!mod__finite(loss)) {
      mod__discard(tr);
      return mod__error(err, MOD_RESULT_NUMERIC, "the loss is not finite: the step was dropped", -1, -1);
   }
   result = mod_tape_backward(tr->tape, tr->forward.loss, err);
   if (result != MOD_RESULT_OK) return result;
   tr->has_forward = 1;
   tr->sums.loss += tr->forward.cross_entropy;
   tr->sums.router_bce += tr->forward.router_bce;
   tr->sums.predictor_bce += tr->forward.predictor_bce;
   tr->sums.balance_loss += tr->forward.balance_loss;
   tr->sums.z_loss += tr->forward.z_loss;
   for (i = 0; i < thetas; ++i) {
      tr->cutoff[i].sum += tr->noted[i].sum;
      tr->cutoff[i].count += tr->noted[i].count;
   }
   tr->sequences += (uint64_t)b.n_seqs;
   return mod__ok(err);
}

/* Sum of squares in double: blocks of 4,096 elements, each as a sum along a row, one after the other. */
MOD__FN double mod__square_sum(const mod_real *x, size_t n)
{
   double total = 0;
   size_t i, j, end;
   for (i = 0; i < n; i = end) {
      double s[16] = {0};
      int half;
      end = n - i < 4096 ? n : i + 4096;
      for (j = i; j < end; ++j) s[(j - i) & 15] += (double)x[j] * (double)x[j];
      for (half = 8; half; half /= 2)
         for (j = 0; j < (size_t)half; ++j) s[j] += s[j + (size_t)half];
      total += s[0];
   }
   return total;
}

enum { MOD__ADAM_CHUNK = 1024 };

MOD__FN void mod__adam_chunk(void *arg, mod__range r)
{
   const mod__adam *a = (const mod__adam *)arg;
   size_t end = (size_t)r.hi * MOD__ADAM_CHUNK;
   r.use->adam_step(a, (size_t)r.lo * MOD__ADAM_CHUNK, end < a->n ? end : a->n);
}

/* What of a step is the same for all parameters; the powers are those of beta after it. */
MOD__FN mod__adam mod__adam_of(const mod_train_desc *d, double lr, double beta1_power, double beta2_power)
{
   mod__adam a;
   memset(&a, 0, sizeof a);
   a.b1 = (mod_real)d->beta1;
   a.b2 = (mod_real)d->beta2;
   a.one_b1 = (mod_real)(1 - d->beta1);
   a.one_b2 = (mod_real)(1 - d->beta2);
   a.step = (mod_real)(lr / (1 - beta1_power));
   a.v_scale = (mod_real)(1 / (1 - beta2_power));
   a.eps = (mod_real)d->eps;
   return a;
}

/* 1 if a gradient with this sum of squares can be used: a square that does not fit would freeze its parameter. */
MOD__FN int mod__usable(const mod_train_desc *d, double squares)
{
   double most = d->clip_norm * d->clip_norm;
   return mod__finite(squares) && (squares <= (double)FLT_MAX || (d->clip_norm > 0 && most <= (double)FLT_MAX));
}

/* The step on n numbers, of a gradient of this norm. */
MOD__FN void mod__adam_run(mod__adam *a, const mod_tape_desc *threads, const mod_train_desc *d, double norm,
                           double decay)
{
   a->clip = d->clip_norm > 0 && norm > d->clip_norm ? (mod_real)(d->clip_norm / norm) : 1;
   a->decay = (mod_real)decay;
   mod__parallel(threads, mod__adam_chunk, a, (int)((a->n + MOD__ADAM_CHUNK - 1) / MOD__ADAM_CHUNK),
                 16.0 * (int)MOD__ADAM_CHUNK, NULL, 0);
}

MODDEF mod_result mod_train_update(mod_trainer *tr, mod_step_info *info, mod_error *err)
{
   const mod_train_desc *d;
   mod_model *model;
   mod__adam a;
   double norm[2] = {0, 0}, lr; /* of the language model and of the predictors */
   int i;
   if (!tr) return mod__bad(err, "trainer is NULL");
   if (!tr->sequences) return mod__error(err, MOD_RESULT_STATE, "nothing has been accumulated", -1, -1);
   d = &tr->desc;
   model = tr->model;
   for (i = 0; i < model->n_tensors; ++i)
      norm[model->param[i].predictor] += mod__square_sum(tr->grads + model->param[i].offset, model->param[i].count);
   if (!mod__usable(d, norm[0]) || !mod__usable(d, norm[1])) {
      mod__discard(tr);
      return mod__error(err, MOD_RESULT_NUMERIC, "the gradient is not finite: the step was dropped", -1, -1);
   }
   norm[0] = sqrt(norm[0]);
   norm[1] = sqrt(norm[1]);
   lr = mod_train_lr(d, tr->step);
   tr->beta1_power *= d->beta1;
   tr->beta2_power *= d->beta2;
   a = mod__adam_of(d, lr, tr->beta1_power, tr->beta2_power);
   for (i = 0; i < model->n_tensors; ++i) {
      const mod_param *p = model->param + i;
      a.p = p->data;
      a.g = tr->grads + p->offset;
      a.m = tr->m + p->offset;
      a.v = tr->v + p->offset;
      a.n = p->count;
      mod__adam_run(&a, &tr->tape->desc, d, norm[p->predictor], p->decay ? lr * d->weight_decay : 0);
   }
   for (i = 0; i < (int)mod__thetas(model); ++i) {
      const mod__cutoff *cutoff = tr->cutoff + i;
      double *theta = model->theta + i, decay = *theta < 0 || *theta > 0 ? d->threshold_decay : 0;
      if (cutoff->count) *theta = decay * *theta + (1 - decay) * (cutoff->sum / (double)cutoff->count);
   }
   ++tr->step;
   if (info) {
      *info = tr->sums;
      info->step = tr->step;
      info->grad_norm = norm[0];
      info->predictor_grad_norm = norm[1];
      info->lr = lr;
   }
   mod__discard(tr);
   return mod__ok(err);
}

MODDEF mod_result mod_adamw(const mod_train_desc *how, int64_t step, mod_real *params, const mod_real *grads,
                            mod_real *m, mod_real *v, size_t n, double *norm, mod_error *err)
{
   const char *complaint;
   mod_tape_desc threads;
   mod__adam a;
   double squares, lr, power[2] = {1, 1}, square[2];
   int64_t left;
   if (!how || step < 0 || step == INT64_MAX || (n && (!params || !grads || !m || !v)))
      return mod__bad(err, "how or an array is NULL, or step is negative or too large");
   if ((complaint = mod__train_complaint(how)) != NULL) return mod__bad(err, complaint);
   if (n / MOD__ADAM_CHUNK >= INT_MAX) return mod__bad(err, "there are too many parameters");
   threads = mod__threads(how->n_threads, how->simd, how->jobs);
   if ((complaint = mod__settle_threads(&threads)) != NULL) return mod__bad(err, complaint);
   squares = mod__square_sum(grads, n);
   if (!mod__usable(how, squares)) return mod__error(err, MOD_RESULT_NUMERIC, "the gradient is not finite", -1, -1);
   square[0] = how->beta1;
   square[1] = how->beta2;
   for (left = step + 1; left > 0; left /= 2, square[0] *= square[0], square[1] *= square[1])
      if (left % 2) {
         power[0] *= square[0];
         power[1] *= square[1];
      }
   lr = mod_train_lr(how, step);
   a = mod__adam_of(how, lr, power[0], power[1]);
   a.p = params;
   a.g = grads;
   a.m = m;
   a.v = v;
   a.n = n;
   mod__adam_run(&a, &threads, how, sqrt(squares), lr * how->weight_decay);
   if (norm) *norm = sqrt(squares);
   return mod__ok(err);
}

MODDEF mod_result mod_train_step(mod_trainer *trainer, const mod_batch *batch, mod_step_info *info, mod_error *err)
{
   mod_result result;
   if (!trainer) return mod__bad(err, "trainer is NULL");
   if (trainer->sequences)
      return mod__error(err, MOD_RESULT_STATE, "micro-batches are accumulated: finish with mod_train_update", -1, -1);
   result = mod_train_accumulate(trainer, batch, err);
   return result == MOD_RESULT_OK ? mod_train_update(trainer, info, err) : result;
}

/* =================================================================================================================
   >>session  A cache for each block: of a routed block it holds the rows that the block took, and no others
   ================================================================================================================= */

struct mod_session {
   mod_allocator allocator; /* of mod_session_create */
   const mod_model *model;
   mod_session_desc desc; /* resolved */
   mod_tape *tape;
   size_t fixed; /* bytes before the tape */
   int n;        /* tokens so far */
   mod__cache cache;
   int *taken_before; /* like cache.taken_slots, as it was before the present call */
   mod_real *logits;
};

/* Resolves desc for a resolved config, or says what is wrong. */
MOD__FN mod_result mod__session_settle(const mod_config *c, const mod_session_desc *desc, mod_session_desc *d,
                                       mod_error *err)
{
   memset(d, 0, sizeof *d);
   if (desc) *d = *desc;
   d->n_seqs = mod__or(d->n_seqs, 1);
   d->length = mod__or(d->length, c->context);
   d->chunk = mod__or(d->chunk, mod__min(32, d->length));
   d->n_threads = mod__or(d->n_threads, 1);
   if (c->mask != MOD_MASK_CAUSAL) return mod__bad(err, "a session needs a causal model");
   if (d->n_seqs != 1) return mod__bad(err, "a session has one sequence");
   if (d->length < 1 || d->length > c->context) return mod__bad(err, "length must be in [1, context]");
   if (d->chunk < 1 || d->chunk > d->length) return mod__bad(err, "chunk must be in [1, length]");
   return mod__ok(err);
}

MOD__FN mod_result mod__session_tape_bytes(const mod_config *c, const mod_session_desc *d, size_t *bytes,
                                           mod_error *err)
{
   mod_batch shape;
   mod_tape_desc tape = mod__threads(d->n_threads, d->simd, d->jobs);
   mod__cache cache;
   memset(&shape, 0, sizeof shape);
   memset(&cache, 0, sizeof cache);
   cache.length = d->length;
   shape.n_seqs = 1;
   shape.length = d->chunk;
   shape.mode = MOD_MODE_CAUSAL;
   tape.forward_only = 1;
   return mod__forward_bytes(c, &shape, &tape, &cache, bytes, err);
}

/* Numbers that a session carries for token-choice, in all blocks: none if there is none. */
MOD__FN size_t mod__all_taken(const mod_config *c)
{
   int l;
   for (l = 0; l < c->n_layers; ++l) {
      mod__router block = mod__router_of(c, l, MOD__OF_BLOCK), experts = mod__router_of(c, l, MOD__OF_EXPERTS);
      if ((block.columns && !block.expert_choice) || (experts.columns && !experts.expert_choice))
         return (size_t)c->n_layers * (size_t)mod__choosable(c);
   }
   return 0;
}

/* Numbers in the logits of a token, or of a sequence. */
MOD__FN int mod__outputs(const mod_config *c) { return c->head >= MOD_HEAD_CLASS ? c->n_outputs : c->vocab_size; }

/* One walk over a session's memory, up to the tape. */
MOD__FN mod_result mod__session_layout(const mod_config *c, const mod_session_desc *d, mod_arena *a, mod_session **out,
                                       size_t *cache, mod_error *err)
{
   size_t layers = (size_t)c->n_layers, rows, numbers, before_cache, n_taken = mod__all_taken(c);
   mod_session s, *session;
   int fits = 1;
   if (!mod__mul(&rows, layers, (size_t)d->length) ||
       !mod__mul(&numbers, rows, (size_t)(c->d_model / c->n_heads * c->n_kv_heads)))
      return mod__error(err, MOD_RESULT_MEMORY, "the session is too large for this machine's addresses", -1, -1);
   memset(&s, 0, sizeof s);
   s.cache.length = d->length;
   session = (mod_session *)mod__push(a, 1, sizeof s, &fits);
   s.cache.start = (int *)mod__push(a, 2 * layers, sizeof(int), &fits);
   s.cache.taken_slots = (int *)mod__push(a, 2 * n_taken, sizeof(int), &fits);
   s.logits = (mod_real *)mod__push(a, (size_t)mod__outputs(c), sizeof(mod_real), &fits);
   before_cache = a->used;
   s.cache.k = (mod_real *)mod__push(a, numbers, sizeof(mod_real), &fits);
   s.cache.v = (mod_real *)mod__push(a, numbers, sizeof(mod_real), &fits);
   s.cache.position = (int *)mod__push(a, rows, sizeof(int), &fits);
   if (!fits) return mod__too_small(err);
   if (cache) *cache = a->used - before_cache;
   if (!a->base) return mod__ok(err);
   memset(a->base, 0, before_cache);
   s.taken_before = n_taken ? s.cache.taken_slots + n_taken : NULL;
   if (!n_taken) s.cache.taken_slots = NULL;
   s.fixed = a->used;
   *session = s;
   *out = session;
   return mod__ok(err);
}

MODDEF mod_result mod_session_plan(const mod_config *cfg, const mod_session_desc *desc, size_t *bytes, size_t *cache,
                                   mod_error *err)
{
   mod_config c;
   mod_session_desc d;
   mod_arena a = mod__counter();
   size_t tape, in_cache, total;
   mod_result result = mod__settle(cfg, &c, err);
   if (result != MOD_RESULT_OK) return result;
   if (!bytes) return mod__bad(err, "bytes is NULL");
   if ((result = mod__session_settle(&c, desc, &d, err)) != MOD_RESULT_OK ||
       (result = mod__session_layout(&c, &d, &a, NULL, &in_cache, err)) != MOD_RESULT_OK ||
       (result = mod__session_tape_bytes(&c, &d, &tape, err)) != MOD_RESULT_OK)
      return result;
   if (!mod__add_size(&total, a.used, tape))
      return mod__error(err, MOD_RESULT_MEMORY, "the session is too large for this machine's addresses", -1, -1);
   *bytes = total;
   if (cache) *cache = in_cache;
   return mod__ok(err);
}

MODDEF mod_session *mod_session_init(const mod_model *model, const mod_session_desc *desc, void *memory, size_t size,
                                     mod_error *err)
{
   mod_session_desc d;
   mod_tape_desc tape;
   mod_session *s = NULL;
   mod_arena a;
   size_t bytes;
   void *tape_memory;
   if (!model || !memory) return mod__bad(err, "model or memory is NULL"), (mod_session *)NULL;
   if (mod__session_settle(&model->config, desc, &d, err) != MOD_RESULT_OK ||
       mod__session_tape_bytes(&model->config, &d, &bytes, err) != MOD_RESULT_OK ||
       mod_arena_init(&a, memory, size, err) != MOD_RESULT_OK ||
       mod__session_layout(&model->config, &d, &a, &s, NULL, err) != MOD_RESULT_OK ||
       mod_arena_push(&a, 1, bytes, &tape_memory, err) != MOD_RESULT_OK)
      return NULL;
   tape = mod__threads(d.n_threads, d.simd, d.jobs);
   tape.forward_only = 1;
   s->model = model;
   s->desc = d;
   s->tape = mod_tape_init(&tape, tape_memory, bytes, err);
   return s->tape ? s : NULL;
}

MODDEF mod_session *mod_session_create(const mod_model *model, const mod_session_desc *desc,
                                       const mod_allocator *allocator, mod_error *err)
{
   mod_allocator chosen;
   size_t bytes;
   void *memory;
   if (!model) return mod__bad(err, "model is NULL"), (mod_session *)NULL;
   if (mod_session_plan(&model->config, desc, &bytes, NULL, err) != MOD_RESULT_OK) return NULL;
   if ((memory = mod__allocate(&chosen, allocator, bytes, err)) == NULL) return NULL;
   return (mod_session *)mod__created(mod_session_init(model, desc, memory, bytes, err), memory, &chosen);
}

MODDEF void mod_session_destroy(mod_session *session) { mod__destroy(session); }

MODDEF void mod_session_reset(mod_session *session)
{
   if (!session) return;
   memset(session->cache.start, 0, 2 * (size_t)session->model->config.n_layers * sizeof(int));
   if (session->cache.taken_slots)
      memset(session->cache.taken_slots, 0, mod__all_taken(&session->model->config) * sizeof(int));
   session->n = 0;
}

/* tokens or inputs; the other is NULL */
MOD__FN mod_result mod__feed(mod_session *s, const int *tokens, const mod_real *inputs, int n, mod_error *err)
{
   const mod_config *c = &s->model->config;
   size_t taken = s->cache.taken_slots ? mod__all_taken(c) * sizeof(int) : 0, at;
   int done = 0, had = s->n, i, l, *end;
   if (n > s->desc.length - s->n)
      return mod__error(err, MOD_RESULT_FULL, "the session has no room for these tokens", -1, -1);
   for (i = 0; tokens && i < n; ++i)
      if (tokens[i] < 0 || tokens[i] >= c->vocab_size)
         return mod__error(err, MOD_RESULT_RANGE, "a token is outside the vocabulary", -1, i);
   for (at = 0; inputs && at < (size_t)n * (size_t)c->n_inputs; ++at)
      if (!mod__finite((double)inputs[at]))
         return mod__error(err, MOD_RESULT_NUMERIC, "an input is not finite", -1, (int64_t)(at / (size_t)c->n_inputs));
   if (taken) memcpy(s->taken_before, s->cache.taken_slots, taken);
   while (done < n) {
      mod_batch b;
      mod_forward out;
      mod__pass p;
      mod_result result;
      memset(&b, 0, sizeof b);
      memset(&out, 0, sizeof out);
      memset(&p, 0, sizeof p);
      b.n_seqs = 1;
      b.length = mod__min(n - done, s->desc.chunk);
      b.tokens = tokens ? tokens + done : NULL;
      b.inputs = inputs ? inputs + (size_t)done * (size_t)c->n_inputs : NULL;
      b.mode = MOD_MODE_CAUSAL;
      b.seed = s->desc.seed;
      b.probe = s->desc.probe;
      b.probe_user = s->desc.probe_user;
      p.cache = &s->cache;
      p.first = s->n;
      mod_tape_reset(s->tape);
      result = mod__forward_on(&p, s->model, s->tape, NULL, &b, &out, err);
      if (result != MOD_RESULT_OK) {
         s->n = had;
         for (l = 0; l < c->n_layers; ++l) /* forget what has been fed since */
            for (end = s->cache.start + 2 * l + 1; *end && s->cache.position[l * s->cache.length + *end - 1] >= had;)
               --*end;
         if (taken) memcpy(s->cache.taken_slots, s->taken_before, taken);
         return result;
      }
      s->n += b.length;
      done += b.length;
      if (done == n) memcpy(s->logits, out.logits->data, (size_t)mod__outputs(c) * sizeof *s->logits);
   }
   return mod__ok(err);
}

MODDEF mod_result mod_session_feed(mod_session *session, const int *tokens, int n, mod_error *err)
{
   if (!session || !tokens || n < 1) return mod__bad(err, "session or tokens is NULL, or there is no token");
   if (session->model->config.n_inputs) return mod__bad(err, "the model takes rows of floats: mod_session_feed_rows");
   return mod__feed(session, tokens, NULL, n, err);
}

MODDEF mod_result mod_session_feed_rows(mod_session *session, const mod_real *rows, int n, mod_error *err)
{
   if (!session || !rows || n < 1) return mod__bad(err, "session or rows is NULL, or there is no row");
   if (!session->model->config.n_inputs) return mod__bad(err, "the model takes token ids: mod_session_feed");
   return mod__feed(session, NULL, rows, n, err);
}

MODDEF const mod_real *mod_session_logits(const mod_session *session)
{
   return session && session->n > 0 ? session->logits : NULL;
}

MODDEF int mod_session_length(const mod_session *session) { return session ? session->n : -1; }

MODDEF int mod_session_cached(const mod_session *session, int block)
{
   return session && block >= 0 && block < session->model->config.n_layers ? session->cache.start[2 * block + 1] : -1;
}

MODDEF size_t mod_session_peak(const mod_session *session)
{
   return session ? session->fixed + mod_tape_peak(session->tape) : 0;
}

/* =================================================================================================================
   >>sample  Drawing a token
   ================================================================================================================= */

/* A set of tokens: all above a key, and the first `ties` of those at it. In order of id. */
typedef struct mod__shortlist {
   mod__key key;
   int ties;
} mod__shortlist;

MOD__FN int mod__listed(const mod__shortlist *s, mod__key key, int *ties_seen)
{
   return key > s->key || (key == s->key && (*ties_seen)++ < s->ties);
}

/* Probability (unnormalised: the largest logit's is 1) of the tokens of the set whose key is at least `from`. */
MOD__FN double mod__mass(const mod_real *logits, int n, const mod__shortlist *s, mod__key from, mod_real m,
                         mod_real scale)
{
   double mass = 0;
   int i, ties = 0;
   for (i = 0; i < n; ++i) {
      mod__key key = mod__key_of(logits[i]);
      if (mod__listed(s, key, &ties) && key >= from) mass += (double)mod__exp((logits[i] - m) * scale);
   }
   return mass;
}

MODDEF int mod_sample(const mod_real *logits, int n, const mod_sample_desc *desc, uint64_t index, mod_error *err)
{
   mod_sample_desc d;
   mod__shortlist list = {0, INT_MAX}; /* every token */
   mod_real m, scale;
   double mass, target;
   int i, best = 0, ties;
   memset(&d, 0, sizeof d);
   if (desc) d = *desc;
   if (!logits || n < 1) return mod__bad(err, "logits is NULL or empty"), -1;
   if (d.top_k < 0 || !(d.top_p >= 0 && d.top_p <= 1) || !(d.temperature >= 0) || !mod__finite(d.temperature))
      return mod__bad(err, "top_k and temperature must not be negative, and top_p be in [0, 1]"), -1;
   if ((i = mod__find_nan(logits, n)) >= 0) return mod__error(err, MOD_RESULT_NUMERIC, "a logit is NaN", -1, i), -1;
   for (i = 1; i < n; ++i)
      if (logits[i] > logits[best]) best = i;
   m = logits[best];
   if (!mod__finite((double)m))
      return mod__error(err, MOD_RESULT_NUMERIC, "the largest logit is infinite", -1, best), -1;
   mod__ok(err);
   if (!(d.temperature > 0) || 1 / d.temperature > (double)FLT_MAX) return best;
   scale = (mod_real)(1 / d.temperature);
   if (scale < (mod_real)FLT_MIN) scale = (mod_real)FLT_MIN; /* 0 times -inf would be NaN */
   if (d.top_k > 0 && d.top_k < n) {
      list.key = mod__kth_key(logits, n, d.top_k);
      list.ties = mod__ties_kept(logits, n, d.top_k, list.key);
   }
   mass = mod__mass(logits, n, &list, 0, m, scale);
   if (d.top_p > 0 && d.top_p < 1) { /* the largest key whose tokens, with all above, still reach p; then as few ties */
      mod__shortlist p = {0, 0};
      mod__key bit;
      target = d.top_p * mass;
      for (bit = (mod__key)1 << (MOD__KEY_BITS - 1); bit; bit >>= 1)
         if (mod__mass(logits, n, &list, p.key | bit, m, scale) >= target) p.key |= bit;
      mass = mod__mass(logits, n, &p, 0, m, scale);
      for (i = 0, ties = 0; i < n && mass < target; ++i) {
         mod__key key = mod__key_of(logits[i]);
         if (key != p.key || !mod__listed(&list, key, &ties)) continue;
         mass += (double)mod__exp((logits[i] - m) * scale);
         ++p.ties;
      }
      list = p;
   }
   target = mod_random_uniform(d.seed, mod_random_stream("sample"), index) * mass;
   for (i = 0, ties = 0, mass = 0; i < n; ++i)
      if (mod__listed(&list, mod__key_of(logits[i]), &ties)) {
         mass += (double)mod__exp((logits[i] - m) * scale);
         if (mass > 0) best = i;
         if (mass > target) break;
      }
   return best;
}

/* =================================================================================================================
   >>file  Safetensors: eight bytes of header length, a JSON header, then the numbers

   The reader trusts nothing: lengths are compared with what is there before anything is read, and every number is
   checked before it is used. Fields are read byte by byte, so that the machine's byte order does not matter.
   ================================================================================================================= */

enum { MOD__HEADER_MAX = 100000000, MOD__JSON_DEPTH = 32, MOD__CHUNK = 1024 };

struct mod_file {
   mod_allocator allocator; /* of mod_file_create */
   mod_reader reader;
   mod_entry *entry;
   int n_entries, n_meta;
   char *text;       /* the header */
   const char *meta; /* in it: n_meta times key, 0, value, 0 */
   mod_block_config *blocks; /* [MOD__MAX_LAYERS] for mod_file_config */
   void (*close)(mod_file *file);
};

/* --- JSON: just what such a header may hold, read in place; strings end in a 0 where their closing quote was --- */

typedef struct mod__json {
   char *text; /* all of it */
   const char *p, *end, *complaint;
} mod__json;

MOD__FN int mod__json_fail(mod__json *j, const char *complaint)
{
   if (!j->complaint) j->complaint = complaint;
   return 0;
}

MOD__FN void mod__json_space(mod__json *j)
{
   while (j->p < j->end && (*j->p == ' ' || *j->p == '\n' || *j->p == '\t' || *j->p == '\r')) ++j->p;
}

/* 1 and past it, if the next character is c. */
MOD__FN int mod__json_is(mod__json *j, char c)
{
   mod__json_space(j);
   if (j->complaint || j->p >= j->end || *j->p != c) return 0;
   ++j->p;
   return 1;
}

MOD__FN int mod__json_expect(mod__json *j, char c)
{
   return mod__json_is(j, c) || mod__json_fail(j, "the header is not the JSON that safetensors asks for");
}

/* Before an item of a list: 1 if there is one more. */
MOD__FN int mod__json_next(mod__json *j, char close, int *first)
{
   if (j->complaint || mod__json_is(j, close)) return *first = 0;
   if (!*first && !mod__json_expect(j, ',')) return 0;
   *first = 0;
   return 1;
}

MOD__FN int mod__hex_digit(char c)
{
   const char *digits = "0123456789abcdef0123456789ABCDEF", *at = c ? strchr(digits, c) : NULL;
   return at ? (int)((at - digits) % 16) : -1;
}

/* `digits` hex digits at *s, and past them, or past the first that is none. */
MOD__FN int mod__parse_hex(const char **s, int digits, uint64_t *out)
{
   uint64_t value = 0;
   while (digits-- > 0) {
      int d = mod__hex_digit(*(*s)++);
      if (d < 0) return 0;
      value = value << 4 | (uint64_t)d;
   }
   *out = value;
   return 1;
}

/* A string, unescaped in place: never longer than it was. NULL on failure. */
MOD__FN const char *mod__json_string(mod__json *j)
{
   char *start, *out;
   if (!mod__json_expect(j, '"')) return NULL;
   start = out = j->text + (j->p - j->text);
   while (j->p < j->end && *j->p != '"') {
      unsigned char c = (unsigned char)*j->p++;
      if (c < 32) return mod__json_fail(j, "a control character in a string"), (const char *)NULL;
      if (c != '\\') {
         *out++ = (char)c;
         continue;
      }
      c = j->p < j->end ? (unsigned char)*j->p++ : 0;
      if (c == 'u') {
         uint64_t u = 0, low = 0;
         if (j->end - j->p >= 4) mod__parse_hex(&j->p, 4, &u);
         if (u >= 0xd800 && u < 0xdc00 && j->end - j->p > 2 && j->p[0] == '\\' && j->p[1] == 'u') {
            j->p += 2;
            if (j->end - j->p >= 4) mod__parse_hex(&j->p, 4, &low);
            u = low >= 0xdc00 && low < 0xe000 ? 0x10000 + ((u - 0xd800) << 10) + (low - 0xdc00) : 0;
         }
         if (u == 0 || (u >= 0xd800 && u < 0xe000))
            return mod__json_fail(j, "a \\u escape that is no character, or 0"), (const char *)NULL;
         if (u < 0x80) {
            *out++ = (char)u;
         } else {
            int tail = u < 0x800 ? 1 : u < 0x10000 ? 2 : 3;
            *out++ = (char)(unsigned char)((0xf00 >> (tail + 1) & 0xff) | u >> (6 * tail));
            while (tail-- > 0) *out++ = (char)(unsigned char)(0x80 | (u >> (6 * tail) & 63));
         }
      } else {
         const char *from = "\"\\/bfnrt", *to = "\"\\/\b\f\n\r\t", *at = c ? strchr(from, c) : NULL;
         if (!at) return mod__json_fail(j, "an escape that JSON does not have"), (const char *)NULL;
         *out++ = to[at - from];
      }
   }
   if (!mod__json_expect(j, '"')) return NULL;
   *out = 0;
   return start;
}

/* A number without sign, fraction and exponent. */
MOD__FN int mod__json_u64(mod__json *j, uint64_t *out)
{
   const char *start;
   uint64_t value = 0;
   mod__json_space(j);
   for (start = j->p; j->p < j->end && *j->p >= '0' && *j->p <= '9'; ++j->p) {
      unsigned digit = (unsigned)(*j->p - '0');
      if (value > (UINT64_MAX - digit) / 10) return mod__json_fail(j, "a number does not fit 64 bits");
      value = value * 10 + digit;
   }
   if (j->p == start || (*start == '0' && j->p - start > 1))
      return mod__json_fail(j, "a number without sign, fraction or exponent is needed");
   *out = value;
   return 1;
}

/* At least one digit, and past them. */
MOD__FN int mod__json_digits(mod__json *j)
{
   const char *start = j->p;
   while (j->p < j->end && *j->p >= '0' && *j->p <= '9') ++j->p;
   return j->p > start || mod__json_fail(j, "the header is not the JSON that safetensors asks for");
}

/* true, false, null or a number. */
MOD__FN int mod__json_word(mod__json *j)
{
   static const char *const words[3] = {"true", "false", "null"};
   size_t left = (size_t)(j->end - j->p), n, i;
   for (i = 0; i < 3; ++i)
      if (left >= (n = strlen(words[i])) && !memcmp(j->p, words[i], n)) return j->p += n, 1;
   if (*j->p == '-') ++j->p; /* the text ends in a 0, so that one may look one character ahead */
   if (*j->p == '0')
      ++j->p;
   else if (!mod__json_digits(j))
      return 0;
   if (*j->p == '.' && (++j->p, !mod__json_digits(j))) return 0;
   if (*j->p == 'e' || *j->p == 'E') {
      if (*++j->p == '+' || *j->p == '-') ++j->p;
      if (!mod__json_digits(j)) return 0;
   }
   return 1;
}

/* Any value, which is of no interest. */
MOD__FN int mod__json_skip(mod__json *j)
{
   char close[MOD__JSON_DEPTH];
   int depth = 0, first = 0;
   for (;;) {
      mod__json_space(j);
      if (*j->p == '"') {
         if (!mod__json_string(j)) return 0;
      } else if (mod__json_is(j, '{') || mod__json_is(j, '[')) {
         if (depth == MOD__JSON_DEPTH) return mod__json_fail(j, "values are nested too deeply");
         close[depth++] = j->p[-1] == '{' ? '}' : ']';
         first = 1;
      } else if (!mod__json_word(j)) {
         return 0;
      }
      while (depth && !mod__json_next(j, close[depth - 1], &first)) --depth;
      if (!depth || j->complaint) return !j->complaint;
      if (close[depth - 1] == '}' && (!mod__json_string(j) || !mod__json_expect(j, ':'))) return 0;
   }
}

/* Well-formed UTF-8 (Unicode 15, table 3-7), and no 0. */
MOD__FN int mod__utf8(const char *text, size_t n)
{
   const unsigned char *s = (const unsigned char *)text, *end = s + n;
   while (s < end) {
      unsigned char c = *s++, low = 0x80, high = 0xbf;
      int tail = c < 0x80 ? 0 : c >= 0xc2 && c < 0xe0 ? 1 : c >= 0xe0 && c < 0xf0 ? 2 : c >= 0xf0 && c < 0xf5 ? 3 : -1;
      if (c == 0 || tail < 0 || end - s < tail) return 0;
      if (c == 0xe0) low = 0xa0;
      if (c == 0xed) high = 0x9f;
      if (c == 0xf0) low = 0x90;
      if (c == 0xf4) high = 0x8f;
      for (; tail > 0; --tail, low = 0x80, high = 0xbf)
         if (*s < low || *s++ > high) return 0;
   }
   return 1;
}

/* --- the header --- */

/* Bytes of a number of this type; 0: no such type. */
MOD__FN uint64_t mod__dtype_size(const char *name)
{
   static const char names[] = "BOOL1U8  1I8  1U16 2I16 2F16 2BF162U32 4I32 4F32 4U64 8I64 8F64 8"; /* five each */
   size_t n = strlen(name), i;
   for (i = 0; n <= 4 && !strchr(name, ' ') && i + 5 <= sizeof names; i += 5)
      if (!strncmp(names + i, name, n) && (n == 4 || names[i + n] == ' ')) return (uint64_t)(names[i + 4] - '0');
   return 0;
}

/* {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, keys in any order. */
MOD__FN int mod__parse_entry(mod__json *j, mod_entry *e)
{
   int first = 1, inner, seen = 0;
   uint64_t bytes;
   int i;
   if (!mod__json_expect(j, '{')) return 0;
   while (mod__json_next(j, '}', &first)) {
      const char *key = mod__json_string(j);
      int bit;
      if (!key || !mod__json_expect(j, ':')) return 0;
      bit = !strcmp(key, "dtype") ? 1 : !strcmp(key, "shape") ? 2 : !strcmp(key, "data_offsets") ? 4 : 0;
      if (seen & bit) return mod__json_fail(j, "a tensor says the same thing twice");
      seen |= bit;
      inner = 1;
      if (bit == 1) {
         if ((e->dtype = mod__json_string(j)) == NULL) return 0;
      } else if (bit == 2) {
         if (!mod__json_expect(j, '[')) return 0;
         for (e->n_dim = 0; mod__json_next(j, ']', &inner); ++e->n_dim) {
            if (e->n_dim == MOD_ENTRY_MAX_DIM) return mod__json_fail(j, "a tensor has more than 8 dimensions");
            if (!mod__json_u64(j, e->dim + e->n_dim)) return 0;
         }
      } else if (bit == 4) {
         if (!mod__json_expect(j, '[') || !mod__json_u64(j, &e->begin) || !mod__json_expect(j, ',') ||
             !mod__json_u64(j, &e->end) || !mod__json_expect(j, ']'))
            return 0;
      } else if (!mod__json_skip(j)) {
         return 0;
      }
   }
   if (j->complaint) return 0;
   if (seen != 7) return mod__json_fail(j, "a tensor needs dtype, shape and data_offsets");
   if ((bytes = mod__dtype_size(e->dtype)) == 0) return mod__json_fail(j, "a tensor has an unknown dtype");
   for (i = 0; i < e->n_dim; ++i) {
      if (e->dim[i] && bytes > UINT64_MAX / e->dim[i]) return mod__json_fail(j, "a tensor's size overflows");
      bytes *= e->dim[i];
   }
   if (e->begin > e->end || e->end - e->begin != bytes)
      return mod__json_fail(j, "a tensor's data_offsets do not match its shape and dtype");
   return 1;
}

/* "__metadata__": null, or an object of strings, which are moved together at *to. */
MOD__FN int mod__parse_meta(mod__json *j, mod_file *f)
{
   int first = 1;
   char *to;
   if (f->meta) return mod__json_fail(j, "there are two __metadata__");
   f->meta = j->p;
   if (j->end - j->p >= 4 && !memcmp(j->p, "null", 4)) {
      j->p += 4;
      return 1;
   }
   if (!mod__json_expect(j, '{')) return 0;
   f->meta = to = j->text + (j->p - j->text);
   while (mod__json_next(j, '}', &first)) {
      int i;
      for (i = 0; i < 2; ++i) {
         const char *s = i == 0 || mod__json_expect(j, ':') ? mod__json_string(j) : NULL;
         size_t n = s ? strlen(s) + 1 : 0;
         if (!s) return 0;
         memmove(to, s, n); /* to <= s: the quotes and the colon make room */
         to += n;
      }
      ++f->n_meta;
   }
   return !j->complaint;
}

MOD__FN int mod__by_name(const mod_entry *a, const mod_entry *b) { return strcmp(a->name, b->name); }
MOD__FN int mod__by_place(const mod_entry *a, const mod_entry *b)
{
   if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
   return a->end < b->end ? -1 : a->end > b->end ? 1 : mod__by_name(a, b);
}

/* Heap sort: a total order, no memory, no bad case. */
MOD__FN void mod__sort_entries(mod_entry *e, int n, int (*compare)(const mod_entry *, const mod_entry *))
{
   int start = n / 2, end = n;
   while (end > 1) {
      int root, child;
      mod_entry moving;
      if (start > 0) {
         moving = e[--start];
      } else {
         moving = e[--end];
         e[end] = e[0];
      }
      for (root = start; (child = 2 * root + 1) < end; root = child) {
         if (child + 1 < end && compare(e + child, e + child + 1) < 0) ++child;
         if (compare(&moving, e + child) >= 0) break;
         e[root] = e[child];
      }
      e[root] = moving;
   }
}

MOD__FN mod_result mod__format(mod_error *err, const char *message, int64_t where)
{
   return mod__error(err, MOD_RESULT_FORMAT, message, -1, where);
}

/* The header's length, compared with the file's. */
MOD__FN mod_result mod__header_length(const mod_reader *r, size_t *length, mod_error *err)
{
   unsigned char bytes[8];
   uint64_t n = 0;
   int i;
   if (!r || !r->read) return mod__bad(err, "a reader with a read function is needed");
   if (r->size < 8) return mod__format(err, "the file is shorter than the 8 bytes of a header length", 0);
   if (r->read(0, bytes, 8, r->user) != 8) return mod__error(err, MOD_RESULT_IO, "the file cannot be read", -1, 0);
   for (i = 0; i < 8; ++i) n |= (uint64_t)bytes[i] << (8 * i);
   if (n > MOD__HEADER_MAX) return mod__format(err, "the header is longer than 100,000,000 bytes", 0);
   if (n > r->size - 8) return mod__format(err, "the header is longer than the file", 0);
   *length = (size_t)n;
   return mod__ok(err);
}

/* One walk over a file's memory. A tensor takes at least 49 characters of the header. */
MOD__FN mod_result mod__file_layout(size_t header, mod_arena *a, mod_file **out, mod_error *err)
{
   mod_file f, *file;
   int fits = 1;
   memset(&f, 0, sizeof f);
   file = (mod_file *)mod__push(a, 1, sizeof f, &fits);
   f.text = (char *)mod__push(a, header + 1, 1, &fits);
   f.entry = (mod_entry *)mod__push(a, header / 49 + 1, sizeof *f.entry, &fits);
   f.blocks = (mod_block_config *)mod__push(a, MOD__MAX_LAYERS, sizeof *f.blocks, &fits);
   if (!fits) return mod__too_small(err);
   if (!a->base) return mod__ok(err);
   *file = f;
   *out = file;
   return mod__ok(err);
}

MODDEF mod_result mod_file_plan(const mod_reader *reader, size_t *bytes, mod_error *err)
{
   size_t header = 0;
   mod_arena a = mod__counter();
   mod_result result = mod__header_length(reader, &header, err);
   if (result != MOD_RESULT_OK) return result;
   if (!bytes) return mod__bad(err, "bytes is NULL");
   result = mod__file_layout(header, &a, NULL, err);
   if (result == MOD_RESULT_OK) *bytes = a.used;
   return result;
}

MODDEF mod_file *mod_file_init(const mod_reader *reader, void *memory, size_t size, mod_error *err)
{
   size_t header = 0;
   mod_file *f = NULL;
   mod_arena a;
   mod__json j;
   int first = 1, i;
   uint64_t at = 0, data;
   if (mod__header_length(reader, &header, err) != MOD_RESULT_OK) return NULL;
   if (!memory) return mod__bad(err, "memory is NULL"), (mod_file *)NULL;
   if (mod_arena_init(&a, memory, size, err) != MOD_RESULT_OK ||
       mod__file_layout(header, &a, &f, err) != MOD_RESULT_OK)
      return NULL;
   f->reader = *reader;
   if (reader->read(8, f->text, header, reader->user) != header)
      return mod__error(err, MOD_RESULT_IO, "the file cannot be read", -1, 8), (mod_file *)NULL;
   f->text[header] = 0;
   if (!mod__utf8(f->text, header)) return mod__format(err, "the header is not UTF-8 text", 8), (mod_file *)NULL;
   j.p = j.text = f->text;
   j.end = f->text + header;
   j.complaint = NULL;
   mod__json_expect(&j, '{');
   while (mod__json_next(&j, '}', &first)) {
      const char *name = mod__json_string(&j);
      mod_entry *e = f->entry + f->n_entries;
      if (!name || !mod__json_expect(&j, ':')) break;
      mod__json_space(&j);
      if (!strcmp(name, "__metadata__")) {
         if (!mod__parse_meta(&j, f)) break;
         continue;
      }
      MOD_ASSERT((size_t)f->n_entries < header / 49 + 1);
      memset(e, 0, sizeof *e);
      e->name = name;
      if (!mod__parse_entry(&j, e)) break;
      ++f->n_entries;
   }
   mod__json_space(&j);
   if (!j.complaint && j.p != j.end) mod__json_fail(&j, "something follows the header's JSON");
   if (j.complaint) return mod__format(err, j.complaint, 8 + (j.p - f->text)), (mod_file *)NULL;
   mod__sort_entries(f->entry, f->n_entries, mod__by_place);
   data = reader->size - 8 - header;
   for (i = 0; i < f->n_entries; ++i) {
      mod_entry *e = f->entry + i;
      const char *wrong = e->begin != at ? "the tensors overlap, or leave a hole"
                          : e->end > data ? "a tensor lies beyond the end of the file" : NULL;
      if (wrong) return mod__format(err, wrong, (int64_t)(8 + header + at)), (mod_file *)NULL;
      at = e->end;
      e->begin += 8 + header;
      e->end += 8 + header;
   }
   if (at != data)
      return mod__format(err, "the file goes on after its last tensor", (int64_t)(8 + header + at)), (mod_file *)NULL;
   mod__sort_entries(f->entry, f->n_entries, mod__by_name);
   for (i = 1; i < f->n_entries; ++i)
      if (!mod__by_name(f->entry + i - 1, f->entry + i))
         return mod__format(err, "two tensors have the same name", 8), (mod_file *)NULL;
   mod__ok(err);
   return f;
}

MODDEF mod_file *mod_file_create(const mod_reader *reader, const mod_allocator *allocator, mod_error *err)
{
   mod_allocator chosen;
   size_t bytes;
   void *memory;
   if (mod_file_plan(reader, &bytes, err) != MOD_RESULT_OK) return NULL;
   if ((memory = mod__allocate(&chosen, allocator, bytes, err)) == NULL) return NULL;
   return (mod_file *)mod__created(mod_file_init(reader, memory, bytes, err), memory, &chosen);
}

MODDEF void mod_file_close(mod_file *file)
{
   if (file && file->close) file->close(file);
   mod__destroy(file);
}

MODDEF const mod_entry *mod_file_tensors(const mod_file *file, int *count)
{
   if (count) *count = file ? file->n_entries : 0;
   return file ? file->entry : NULL;
}

MODDEF const char *mod_file_meta(const mod_file *file, const char *key)
{
   const char *s = file ? file->meta : NULL, *found = NULL;
   int i;
   for (i = 0; s && key && i < file->n_meta; ++i) {
      const char *value = s + strlen(s) + 1;
      if (!strcmp(s, key)) found = value; /* of equal keys the last, as JSON's readers do */
      s = value + strlen(value) + 1;
   }
   return found;
}

/* Bytes of a number that can be read, or 0. */
MOD__FN size_t mod__width(const mod_entry *e)
{
   return !strcmp(e->dtype, "F32") ? 4 : !strcmp(e->dtype, "F64") ? 8 : 0;
}

/* The numbers of a tensor into out, or nowhere. */
MOD__FN mod_result mod__read_numbers(const mod_file *f, const mod_entry *e, mod_real *out, mod_error *err)
{
   unsigned char bytes[MOD__CHUNK];
   size_t width = mod__width(e), i = 0, n, k;
   uint64_t at;
   for (at = e->begin; at < e->end; at += n) {
      n = e->end - at < sizeof bytes ? (size_t)(e->end - at) : sizeof bytes;
      if (f->reader.read(at, bytes, n, f->reader.user) != n)
         return mod__error(err, MOD_RESULT_IO, "the file cannot be read", -1, (int64_t)at);
      for (k = 0; k < n && out; k += width, ++i) {
         uint64_t bits = 0;
         size_t b;
         for (b = 0; b < width; ++b) bits |= (uint64_t)bytes[k + b] << (8 * b);
         out[i] = width == 8 ? (mod_real)mod__from_bits64(bits) : (mod_real)mod__from_bits((uint32_t)bits);
      }
   }
   return mod__ok(err);
}

MODDEF mod_result mod_file_read(const mod_file *file, int index, mod_real *out, size_t count, mod_error *err)
{
   const mod_entry *e;
   size_t width;
   if (!file || !out || index < 0 || index >= file->n_entries)
      return mod__bad(err, "file or out is NULL, or there is no tensor with this index");
   e = file->entry + index;
   if ((width = mod__width(e)) == 0) return mod__format(err, "the tensor is neither F32 nor F64", index);
   if ((e->end - e->begin) / width != count)
      return mod__error(err, MOD_RESULT_SHAPE, "the tensor has another number of elements", -1, index);
   return mod__read_numbers(file, e, out, err);
}

/* --- settings in the metadata: integers in decimal, doubles by the 16 hex digits of their bits --- */

typedef struct mod__field {
   const char *name;
   size_t offset;
   int real; /* 1: a double; 0: an int */
   int since; /* files of an earlier format do not have it: then it is 0 */
} mod__field; /* tables of these end with a name that is NULL */

#define MOD__INT(field) {#field, offsetof(MOD__OWNER, field), 0, 1}
#define MOD__REAL(field) {#field, offsetof(MOD__OWNER, field), 1, 1}
#define MOD__INT_2(field) {#field, offsetof(MOD__OWNER, field), 0, 2}
#define MOD__REAL_2(field) {#field, offsetof(MOD__OWNER, field), 1, 2}
/* The loops over these stop at the first that the file's format does not have: so the order is by format. */
#define MOD__OWNER mod_config
static const mod__field mod__config_fields[] = {
   MOD__INT(vocab_size), MOD__INT(context), MOD__INT(n_layers), MOD__INT(d_model), MOD__INT(n_heads),
   MOD__INT(n_kv_heads), MOD__INT(d_ff), MOD__INT(norm), MOD__INT(position), MOD__INT(activation), MOD__INT(bias),
   MOD__INT(head), MOD__INT(select), MOD__INT(route_first), MOD__INT(route_every), MOD__REAL(capacity), MOD__INT(gate),
   MOD__REAL(gate_scale), MOD__INT(causal), MOD__REAL(router_loss), MOD__REAL(predictor_loss), MOD__REAL(norm_eps),
   MOD__REAL(rope_base), MOD__INT_2(mask), MOD__INT_2(n_inputs), MOD__INT_2(n_outputs), MOD__INT_2(bypass),
   MOD__INT_2(kv_select), MOD__INT_2(kv_gate), MOD__REAL_2(kv_capacity), MOD__INT_2(mlp), MOD__INT_2(n_experts),
   MOD__INT_2(n_noops), MOD__INT_2(choice), MOD__INT_2(choices), MOD__REAL_2(capacity_factor),
   MOD__REAL_2(balance_loss), MOD__REAL_2(z_loss), {NULL, 0, 0, 0}};
#undef MOD__OWNER
#define MOD__OWNER mod_train_desc
static const mod__field mod__train_fields[] = {
   MOD__INT(n_seqs), MOD__INT(length), MOD__INT(steps), MOD__INT(warmup), MOD__REAL(lr), MOD__REAL(lr_min),
   MOD__REAL(beta1), MOD__REAL(beta2), MOD__REAL(eps), MOD__REAL(weight_decay), MOD__REAL(clip_norm),
   MOD__REAL_2(dropout), MOD__INT_2(capacity_warmup), MOD__REAL_2(threshold_decay), {NULL, 0, 0, 0}};
#undef MOD__OWNER
#define MOD__OWNER mod_block_config
static const mod__field mod__block_fields[] = {
   MOD__INT(select), MOD__INT(gate), MOD__REAL(capacity), MOD__INT_2(kv_select), MOD__INT_2(kv_gate),
   MOD__REAL_2(kv_capacity), MOD__INT_2(mlp), MOD__INT_2(choice), {NULL, 0, 0, 0}};
#undef MOD__OWNER
#undef MOD__INT
#undef MOD__REAL
#undef MOD__INT_2
#undef MOD__REAL_2

MOD__FN int mod__parse_real(const char **s, double *out)
{
   uint64_t bits;
   if (!mod__parse_hex(s, 16, &bits)) return 0;
   *out = mod__from_bits64(bits);
   return 1;
}

MOD__FN int mod__parse_int(const char **s, int *out)
{
   int value = 0, digits = 0;
   for (; **s >= '0' && **s <= '9'; ++*s, ++digits) {
      int digit = **s - '0';
      if (value > (INT_MAX - digit) / 10) return 0;
      value = value * 10 + digit;
   }
   *out = value;
   return digits > 0;
}

/* Of the settings in a file: 1, or 2 since version 0.4.0. 0: another. */
MOD__FN int mod__format_of(const mod_file *f)
{
   const char *s = mod_file_meta(f, "mod.format");
   return s && !strcmp(s, "1") ? 1 : s && !strcmp(s, "2") ? 2 : 0;
}

MOD__FN mod_result mod__read_fields(const mod_file *f, const char *prefix, const mod__field *field, void *to,
                                    mod_error *err)
{
   const int format = mod__format_of(f);
   int i;
   if (!mod_file_meta(f, "mod.format")) return mod__format(err, "the file was not written by mod.h", -1);
   if (!format)
      return mod__error(err, MOD_RESULT_VERSION, "the file is of a later version of mod.h", -1, -1);
   for (i = 0; field[i].name && field[i].since <= format; ++i) {
      char key[32];
      const char *s;
      void *at = (unsigned char *)to + field[i].offset;
      strcpy(key, prefix);
      strcat(key, field[i].name);
      if ((s = mod_file_meta(f, key)) == NULL) return mod__format(err, "a setting is missing in the metadata", i);
      if (!(field[i].real ? mod__parse_real(&s, (double *)at) : mod__parse_int(&s, (int *)at)) || *s)
         return mod__format(err, "a setting in the metadata is not a number of its kind", i);
   }
   return mod__ok(err);
}

MODDEF mod_result mod_file_config(const mod_file *file, mod_config *cfg, mod_error *err)
{
   mod_config c, resolved;
   const char *s;
   size_t n_params;
   mod_result result;
   int n_tensors, i, k, format;
   if (!file || !cfg) return mod__bad(err, "file or cfg is NULL");
   format = mod__format_of(file);
   memset(&c, 0, sizeof c);
   result = mod__read_fields(file, "mod.", mod__config_fields, &c, err);
   if (result != MOD_RESULT_OK) return result;
   resolved = mod_config_resolve(&c); /* the blocks' own settings, which follow, may be what makes them fit together */
   if ((s = mod__complaint_of_model(&resolved)) != NULL) return mod__error(err, MOD_RESULT_CONFIG, s, -1, -1);
   if ((s = mod_file_meta(file, "mod.blocks")) == NULL) return mod__format(err, "the list of blocks is missing", -1);
   for (i = 0; i < c.n_layers; ++i) {
      memset(file->blocks + i, 0, sizeof *file->blocks);
      for (k = 0; mod__block_fields[k].name && mod__block_fields[k].since <= format; ++k) {
         void *at = (unsigned char *)(file->blocks + i) + mod__block_fields[k].offset;
         if ((k && *s++ != ' ') ||
             !(mod__block_fields[k].real ? mod__parse_real(&s, (double *)at) : mod__parse_int(&s, (int *)at)))
            return mod__format(err, "the list of blocks is wrong", i);
      }
      if (*s++ != ';') return mod__format(err, "the list of blocks is wrong", i);
   }
   if (*s) return mod__format(err, "the list of blocks is too long", i);
   c.blocks = file->blocks;
   if ((result = mod__settle(&c, &c, err)) != MOD_RESULT_OK) return result;
   for (i = 0; i < c.n_layers; ++i) file->blocks[i] = mod__block_of(&c, i);
   if (!mod__enumerate(&c, NULL, NULL, &n_params, &n_tensors) || n_params > file->reader.size / 4)
      return mod__format(err, "the file is shorter than the model that it describes", -1);
   *cfg = c;
   return mod__ok(err);
}

typedef struct mod__train_state {
   uint64_t seed, position, step;
   double beta1_power, beta2_power;
} mod__train_state;

MOD__FN mod_result mod__read_train_state(const mod_file *f, mod__train_state *t, mod_error *err)
{
   const char *s = mod_file_meta(f, "mod.train.state");
   if (!s) return mod__error(err, MOD_RESULT_STATE, "the file holds no training state", -1, -1);
   if (!mod__parse_hex(&s, 16, &t->seed) || *s++ != ' ' || !mod__parse_hex(&s, 16, &t->position) || *s++ != ' ' ||
       !mod__parse_hex(&s, 16, &t->step) || *s++ != ' ' || !mod__parse_real(&s, &t->beta1_power) || *s++ != ' ' ||
       !mod__parse_real(&s, &t->beta2_power) || *s)
      return mod__format(err, "the training state is wrong", -1);
   if (t->step > INT64_MAX / 2 || !(t->beta1_power >= 0 && t->beta1_power <= 1) ||
       !(t->beta2_power >= 0 && t->beta2_power <= 1))
      return mod__format(err, "the training state is out of range", -1);
   return mod__ok(err);
}

MODDEF mod_result mod_file_train_desc(const mod_file *file, mod_train_desc *how, uint64_t *position, mod_error *err)
{
   mod_train_desc d;
   mod__train_state state;
   const char *complaint;
   mod_result result;
   if (!file || !how) return mod__bad(err, "file or how is NULL");
   memset(&d, 0, sizeof d);
   if ((result = mod__read_train_state(file, &state, err)) != MOD_RESULT_OK) return result;
   result = mod__read_fields(file, "mod.train.", mod__train_fields, &d, err);
   if (result != MOD_RESULT_OK) return result;
   d.seed = state.seed;
   if ((complaint = mod__train_complaint(&d)) != NULL) return mod__format(err, complaint, -1);
   if (d.n_seqs < 1 || d.length < 1) return mod__format(err, "n_seqs and length must be at least 1", -1);
   *how = d;
   if (position) *position = state.position;
   return mod__ok(err);
}

/* Of the names of parameters and their moments. */
static const char *const mod__prefix[3] = {"", "adam.m.", "adam.v."};

/* The entry of a parameter (or, with a prefix, of one of its moments), if its shape is right. */
MOD__FN const mod_entry *mod__find_entry(const mod_file *f, const char *prefix, const mod_param *p)
{
   const mod_entry *e;
   char name[MOD__NAME + 8];
   int low = 0, high = f->n_entries, i;
   strcpy(name, prefix);
   strcat(name, p->name);
   while (low < high) { /* they are sorted by name */
      int middle = low + (high - low) / 2;
      if (strcmp(f->entry[middle].name, name) < 0) low = middle + 1;
      else high = middle;
   }
   e = f->entry + low;
   if (low == f->n_entries || strcmp(e->name, name) || !mod__width(e) || e->n_dim != p->n_dim) return NULL;
   for (i = 0; i < e->n_dim; ++i)
      if (e->dim[i] != (uint64_t)p->dim[i]) return NULL;
   return e;
}

/* Reads all that a load needs; stores it, or only looks whether it could. */
MOD__FN mod_result mod__load_tensors(const mod_file *f, mod_model *m, mod_trainer *tr, int store, mod_error *err)
{
   mod_real *to[3] = {m->params, tr ? tr->m : NULL, tr ? tr->v : NULL};
   int kind, i;
   for (kind = 0; kind < (tr ? 3 : 1); ++kind)
      for (i = 0; i < m->n_tensors; ++i) {
         const mod_param *p = m->param + i;
         const mod_entry *e = mod__find_entry(f, mod__prefix[kind], p);
         mod_result result;
         if (!e) return mod__format(err, "a tensor of the model is missing, or has another shape or dtype", i);
         result = mod__read_numbers(f, e, store ? to[kind] + p->offset : NULL, err);
         if (result != MOD_RESULT_OK) return result;
      }
   return mod__ok(err);
}

/* All n, into theta; NULL: only looks. */
MOD__FN mod_result mod__read_thresholds(const mod_file *f, int n, double *theta, mod_error *err)
{
   const char *s = mod_file_meta(f, "mod.thresholds");
   int i;
   for (i = 0; s && i < n; ++i) {
      double x;
      if (!mod__parse_real(&s, &x) || *s++ != ';' || mod__nan(x)) break;
      if (theta) theta[i] = x;
   }
   if (!s || i < n || *s) return mod__format(err, "the thresholds are missing, wrong, or too many or too few", i);
   return mod__ok(err);
}

MODDEF mod_result mod_file_load(const mod_file *file, mod_model *model, mod_trainer *trainer, mod_error *err)
{
   mod_config c;
   mod__train_state state;
   mod_result result;
   int i, layers, thetas;
   if (!file || !model) return mod__bad(err, "file or model is NULL");
   if (trainer && trainer->model != model) return mod__bad(err, "the trainer is another model's");
   memset(&state, 0, sizeof state);
   layers = model->config.n_layers;
   thetas = (int)mod__thetas(model);
   if ((result = mod_file_config(file, &c, err)) != MOD_RESULT_OK) return result;
   for (i = 0; mod__config_fields[i].name; ++i)
      if (memcmp((const unsigned char *)&c + mod__config_fields[i].offset,
                 (const unsigned char *)&model->config + mod__config_fields[i].offset,
                 mod__config_fields[i].real ? sizeof(double) : sizeof(int)))
         return mod__format(err, "the file is of a model with other settings", i);
   for (i = 0; i < layers; ++i)
      if (memcmp(c.blocks + i, model->blocks + i, sizeof *c.blocks))
         return mod__error(err, MOD_RESULT_FORMAT, "the file is of a model with another block", i, -1);
   if ((result = mod__read_thresholds(file, thetas, NULL, err)) != MOD_RESULT_OK) return result;
   if (trainer && (result = mod__read_train_state(file, &state, err)) != MOD_RESULT_OK) return result;
   if ((result = mod__load_tensors(file, model, trainer, 0, err)) != MOD_RESULT_OK ||
       (result = mod__load_tensors(file, model, trainer, 1, err)) != MOD_RESULT_OK)
      return result;
   mod__read_thresholds(file, thetas, model->theta, err);
   if (trainer) {
      trainer->step = (int64_t)state.step;
      trainer->beta1_power = state.beta1_power;
      trainer->beta2_power = state.beta2_power;
      mod__discard(trainer);
   }
   return mod__ok(err);
}

/* --- writing: the header is written twice, first to count its bytes --- */

typedef struct mod__out {
   const mod_writer *writer; /* NULL: count only */
   uint64_t count;
   int failed;
} mod__out;

MOD__FN void mod__put(mod__out *o, const void *bytes, size_t n)
{
   if (o->writer && n && !o->failed) o->failed = o->writer->write(bytes, n, o->writer->user) != n;
   o->count += n;
}

MOD__FN void mod__put_text(mod__out *o, const char *text) { mod__put(o, text, strlen(text)); }

/* In base 10 or 16, with leading zeros up to `digits`. */
MOD__FN void mod__put_number(mod__out *o, uint64_t value, unsigned base, int digits)
{
   char text[20];
   int n = 0;
   do text[19 - n++] = "0123456789abcdef"[value % base];
   while ((value /= base) > 0 || n < digits);
   mod__put(o, text + 20 - n, (size_t)n);
}

MOD__FN void mod__put_bits(mod__out *o, double x) { mod__put_number(o, mod__bits64(x), 16, 16); }

MOD__FN void mod__put_string(mod__out *o, const char *text)
{
   mod__put_text(o, "\"");
   for (; *text; ++text) {
      unsigned char c = (unsigned char)*text;
      if (c < 32) {
         mod__put_text(o, "\\u");
         mod__put_number(o, c, 16, 4);
      } else {
         if (c == '"' || c == '\\') mod__put_text(o, "\\");
         mod__put(o, text, 1);
      }
   }
   mod__put_text(o, "\"");
}

MOD__FN void mod__put_fields(mod__out *o, const char *prefix, const mod__field *field, const void *from)
{
   int i;
   for (i = 0; field[i].name; ++i) {
      const void *at = (const unsigned char *)from + field[i].offset;
      mod__put_text(o, ",\"");
      mod__put_text(o, prefix);
      mod__put_text(o, field[i].name);
      mod__put_text(o, "\":\"");
      if (field[i].real) {
         double x = *(const double *)at;
         mod__put_bits(o, x);
         if (x >= 0 && x < 1e9) { /* and a copy for people, to nine decimals, which nobody parses */
            uint64_t nano = (uint64_t)(x * 1e9 + 0.5);
            mod__put_text(o, "\",\"");
            mod__put_text(o, prefix);
            mod__put_text(o, field[i].name);
            mod__put_text(o, " is about\":\"");
            mod__put_number(o, nano / 1000000000, 10, 1);
            mod__put_text(o, ".");
            mod__put_number(o, nano % 1000000000, 10, 9);
         }
      } else {
         mod__put_number(o, (uint64_t)*(const int *)at, 10, 1);
      }
      mod__put_text(o, "\"");
   }
}

MOD__FN void mod__put_header(mod__out *o, const mod_model *m, const mod_save_desc *d)
{
   const mod_trainer *tr = d->trainer;
   uint64_t at = 0;
   int i, kind, k;
   mod__put_text(o, "{\"__metadata__\":{\"mod.format\":\"2\"");
   mod__put_fields(o, "mod.", mod__config_fields, &m->config);
   mod__put_text(o, ",\"mod.blocks\":\"");
   for (i = 0; i < m->config.n_layers; ++i)
      for (k = 0; mod__block_fields[k].name; ++k) {
         const void *value = (const unsigned char *)(m->blocks + i) + mod__block_fields[k].offset;
         if (mod__block_fields[k].real) mod__put_bits(o, *(const double *)value);
         else mod__put_number(o, (uint64_t)*(const int *)value, 10, 1);
         mod__put_text(o, mod__block_fields[k + 1].name ? " " : ";");
      }
   mod__put_text(o, "\",\"mod.thresholds\":\"");
   for (i = 0; i < (int)mod__thetas(m); ++i) {
      mod__put_bits(o, m->theta[i]);
      mod__put_text(o, ";");
   }
   mod__put_text(o, "\"");
   if (tr) {
      const uint64_t state[5] = {tr->desc.seed, d->position, (uint64_t)tr->step, mod__bits64(tr->beta1_power),
                                 mod__bits64(tr->beta2_power)};
      mod__put_fields(o, "mod.train.", mod__train_fields, &tr->desc);
      mod__put_text(o, ",\"mod.train.state\":\"");
      for (i = 0; i < 5; ++i) {
         mod__put_number(o, state[i], 16, 16);
         mod__put_text(o, i < 4 ? " " : "\"");
      }
   }
   for (i = 0; i < d->n_meta; ++i) {
      mod__put_text(o, ",");
      mod__put_string(o, d->meta[2 * i]);
      mod__put_text(o, ":");
      mod__put_string(o, d->meta[2 * i + 1]);
   }
   mod__put_text(o, "}");
   for (kind = 0; kind < (tr ? 3 : 1); ++kind)
      for (i = 0; i < m->n_tensors; ++i) {
         const mod_param *p = m->param + i;
         mod__put_text(o, ",\"");
         mod__put_text(o, mod__prefix[kind]);
         mod__put_text(o, p->name);
         mod__put_text(o, sizeof(mod_real) == 8 ? "\":{\"dtype\":\"F64\"" : "\":{\"dtype\":\"F32\"");
         mod__put_text(o, ",\"shape\":[");
         for (k = 0; k < p->n_dim; ++k) {
            if (k) mod__put_text(o, ",");
            mod__put_number(o, (uint64_t)p->dim[k], 10, 1);
         }
         mod__put_text(o, "],\"data_offsets\":[");
         mod__put_number(o, at, 10, 1);
         mod__put_text(o, ",");
         mod__put_number(o, at += (uint64_t)p->count * sizeof(mod_real), 10, 1);
         mod__put_text(o, "]}");
      }
   mod__put_text(o, "}");
   while (o->count % 8) mod__put_text(o, " ");
}

MOD__FN void mod__put_numbers(mod__out *o, const mod_real *x, size_t n)
{
   unsigned char bytes[MOD__CHUNK];
   size_t i, k = 0, b;
   for (i = 0; i < n; ++i) {
      uint64_t bits = 0;
#ifdef MOD_USE_DOUBLE
      memcpy(&bits, x + i, 8);
#else
      bits = mod__bits(x[i]);
#endif
      for (b = 0; b < sizeof *x; ++b) bytes[k++] = (unsigned char)(bits >> (8 * b));
      if (k == sizeof bytes || i + 1 == n) {
         mod__put(o, bytes, k);
         k = 0;
      }
   }
}

MODDEF mod_result mod_save(const mod_model *model, const mod_save_desc *desc, const mod_writer *writer, mod_error *err)
{
   mod_save_desc d;
   mod__out o;
   unsigned char length[8];
   int i, k;
   memset(&d, 0, sizeof d);
   memset(&o, 0, sizeof o);
   if (desc) d = *desc;
   if (!model || !writer || !writer->write) return mod__bad(err, "model is NULL, or there is no writer");
   if (d.n_meta < 0 || d.n_meta > INT_MAX / 2 || (d.n_meta && !d.meta))
      return mod__bad(err, "meta is NULL, or n_meta negative or too large");
   for (i = 0; i < 2 * d.n_meta; ++i) {
      if (!d.meta[i] || !mod__utf8(d.meta[i], strlen(d.meta[i])))
         return mod__error(err, MOD_RESULT_ARG, "a key or value of meta is NULL or not UTF-8", -1, i);
      for (k = 0; i % 2 == 0 && k < i; k += 2)
         if (!strcmp(d.meta[i], d.meta[k])) return mod__error(err, MOD_RESULT_ARG, "a key of meta stands twice", -1, i);
      if (i % 2 == 0 && !strncmp(d.meta[i], "mod.", 4))
         return mod__error(err, MOD_RESULT_ARG, "a key of meta begins with mod., which is the library's", -1, i);
   }
   if (d.trainer && d.trainer->model != model) return mod__bad(err, "the trainer is another model's");
   if (d.trainer && d.trainer->sequences)
      return mod__error(err, MOD_RESULT_STATE, "micro-batches are accumulated: save after mod_train_update", -1, -1);
   for (i = 0; i < (int)mod__thetas(model); ++i)
      if (mod__nan(model->theta[i]))
         return mod__error(err, MOD_RESULT_NUMERIC, "a threshold is NaN", i % model->config.n_layers, -1);
   mod__put_header(&o, model, &d);
   if (o.count > MOD__HEADER_MAX) return mod__bad(err, "the header would be longer than 100,000,000 bytes");
   for (i = 0; i < 8; ++i) length[i] = (unsigned char)(o.count >> (8 * i));
   o.writer = writer;
   mod__put(&o, length, 8);
   o.count = 0;
   mod__put_header(&o, model, &d);
   mod__put_numbers(&o, model->params, model->n_params);
   if (d.trainer) {
      mod__put_numbers(&o, d.trainer->m, model->n_params);
      mod__put_numbers(&o, d.trainer->v, model->n_params);
   }
   return o.failed ? mod__error(err, MOD_RESULT_IO, "the writer did not take all bytes", -1, -1) : mod__ok(err);
}

#ifndef MOD_NO_STDIO

MOD__FN size_t mod__stdio_write(const void *from, size_t size, void *user)
{
   return fwrite(from, 1, size, (FILE *)user);
}

MODDEF mod_result mod_save_file(const mod_model *model, const mod_save_desc *desc, const char *path, mod_error *err)
{
   char aside[1024];
   mod_writer writer;
   mod_result result;
   FILE *file;
   if (!model || !path || !*path) return mod__bad(err, "model or path is NULL, or the path is empty");
   if (strlen(path) + 5 > sizeof aside) return mod__bad(err, "the path is too long");
   strcpy(aside, path);
   strcat(aside, ".tmp");
   if ((file = fopen(aside, "wb")) == NULL)
      return mod__error(err, MOD_RESULT_IO, "the file beside the path cannot be created", -1, -1);
   writer.write = mod__stdio_write;
   writer.user = file;
   result = mod_save(model, desc, &writer, err);
   if (fclose(file) && result == MOD_RESULT_OK)
      result = mod__error(err, MOD_RESULT_IO, "the file cannot be closed: its last bytes are lost", -1, -1);
#ifdef _WIN32
   if (result == MOD_RESULT_OK) remove(path); /* rename does not replace there */
#endif
   if (result == MOD_RESULT_OK && rename(aside, path))
      result = mod__error(err, MOD_RESULT_IO, "the file cannot be renamed to the path", -1, -1);
   if (result != MOD_RESULT_OK) remove(aside);
   return result;
}

MOD__FN size_t mod__stdio_read(uint64_t offset, void *to, size_t size, void *user)
{
   FILE *file = (FILE *)user;
   if (offset > LONG_MAX || fseek(file, (long)offset, SEEK_SET)) return 0;
   return fread(to, 1, size, file);
}

MOD__FN void mod__stdio_close(mod_file *file) { fclose((FILE *)file->reader.user); }

MODDEF mod_file *mod_file_open(const char *path, const mod_allocator *allocator, mod_error *err)
{
   mod_reader reader;
   mod_file *f = NULL;
   FILE *file;
   long size = -1;
   if (!path) return mod__bad(err, "path is NULL"), (mod_file *)NULL;
   if ((file = fopen(path, "rb")) == NULL)
      return mod__error(err, MOD_RESULT_IO, "the file cannot be opened", -1, -1), (mod_file *)NULL;
   if (!fseek(file, 0, SEEK_END)) size = ftell(file);
   reader.size = size < 0 ? 0 : (uint64_t)size;
   reader.read = mod__stdio_read;
   reader.user = file;
   if (size < 0)
      mod__error(err, MOD_RESULT_IO, "the file has no length that this machine can tell", -1, -1);
   else
      f = mod_file_create(&reader, allocator, err);
   if (f)
      f->close = mod__stdio_close;
   else
      fclose(file);
   return f;
}

#endif /* MOD_NO_STDIO */

/* =================================================================================================================
   >>host  What this build is
   ================================================================================================================= */

#ifdef MOD_USE_DOUBLE
#define MOD__INFO_REAL "double"
#else
#define MOD__INFO_REAL "float"
#endif
#define MOD__INFO(level, promise) \
   "mod.h 0.4.0, " MOD__INFO_REAL ", " MOD__INFO_THREADS ", " level "; same bits: " promise
#define MOD__RETURN_INFO(promise)                                                                              \
   {                                                                                                           \
      static const char *const info[] = { /* by mod_simd */                                                    \
         NULL, MOD__INFO("scalar", promise), MOD__INFO("SSE2", promise), MOD__INFO("AVX2", promise),            \
         MOD__INFO("AVX-512", promise), MOD__INFO("NEON", promise), MOD__INFO("WebAssembly SIMD128", promise)}; \
      return info[mod_simd_best()];                                                                            \
   }

MODDEF const char *mod_build_info(void)
{
#if defined(MOD_USE_DOUBLE)
   MOD__RETURN_INFO("not promised (MOD_USE_DOUBLE)")
#elif defined(MOD__FAST_MATH)
   MOD__RETURN_INFO("not promised (fast-math)")
#elif !defined(FLT_EVAL_METHOD) || (FLT_EVAL_METHOD != 0 && FLT_EVAL_METHOD != 16) /* 16: half floats only */
   MOD__RETURN_INFO("not promised (floats are computed with more precision than they have)")
#else
   volatile float a = 1.000244140625f, product, tiny = FLT_MIN; /* 1 + 2^-12, whose square does not fit a float */
   float fused = a * a - 1.00048828125f, x[32] = {0}, y[32] = {0};
   product = a * a;
   product = product - 1.00048828125f;
   tiny = tiny * 0.5f;
   x[0] = -1.00048828125f;
   y[0] = 1;
   x[16] = y[16] = a; /* the same in vectors: the first partial sum is fused or not */
   if (mod__bits(mod__exp(a)) != 0x402e0334u) MOD__RETURN_INFO("not promised (fast-math)")
   if (tiny == 0) MOD__RETURN_INFO("not promised (denormals are flushed)")
   if (fused < product || fused > product || mod__level(mod_simd_best())->dot(x, y, 32) != product)
      MOD__RETURN_INFO("not promised (the compiler fuses multiply and add)")
#ifdef MOD_FAST_FMA
   MOD__RETURN_INFO("promised among levels that fuse, and among those that do not (MOD_FAST_FMA)")
#else
   MOD__RETURN_INFO("promised")
#endif
#endif
}

#undef MOD__SSE2
#undef MOD__AVX
#undef MOD__NEON
#undef MOD__WASM128
#undef MOD__AND_FMA
#undef MOD__SQRT4
#undef MOD__INLINE
#undef MOD__MAPS
#undef MOD__MAP_LOOPS
#undef MOD__INFO
#undef MOD__RETURN_INFO
#undef MOD__INFO_REAL
#undef MOD__INFO_THREADS
#undef MOD__OPENMP
#undef MOD__RESTRICT
#undef MOD__FN
#undef MOD__FAST_MATH
#undef MOD__RESULTS

#if defined(__clang__)
#pragma STDC FP_CONTRACT DEFAULT
#elif defined(__GNUC__)
#pragma GCC pop_options
#elif defined(_MSC_VER)
#pragma fp_contract(on)
#endif

#endif /* MOD_IMPLEMENTATION */

#else /* MOD__LEVEL is defined: the header reads itself for one instruction set */
#if MOD_H_VERSION != 400
#error "mod.h: the file that MOD_SELF names is another version"
#endif

/* =================================================================================================================
   >>simd  The kernels of >>kernels in vectors of MOD__LANES floats

   The vector types of gcc and clang: + - * / and comparisons of C, lane by lane; a number beside a vector stands for
   all lanes. Lanes are different outputs, or different ones of the sixteen partial sums, so no sum changes its order.
   ================================================================================================================= */

typedef float MOD__LEVEL(vector) __attribute__((__vector_size__(4 * MOD__LANES)));
typedef float MOD__LEVEL(loose) __attribute__((__vector_size__(4 * MOD__LANES), __aligned__(4), __may_alias__));
typedef float MOD__LEVEL(four) __attribute__((__vector_size__(16), __aligned__(4), __may_alias__));
typedef int MOD__LEVEL(mask) __attribute__((__vector_size__(4 * MOD__LANES)));
#define MOD__V MOD__LEVEL(vector)
#define MOD__LOAD(p) (*(const MOD__LEVEL(loose) *)(p))
#define MOD__STORE(p, v) (*(MOD__LEVEL(loose) *)(p) = (v))
#define MOD__UNROLL _Pragma("GCC unroll 16")
#define MOD__SUMS (16 / MOD__LANES)
#define MOD__WIDTH (MOD__VECTORS * MOD__LANES)
#if defined(MOD_FAST_FMA) && defined(MOD__FUSED)
#define MOD__STEP MOD__FUSED
#else
#define MOD__STEP(c, a, b) ((c) + (a) * (b))
#endif

/* C (+)= A B for `rows` rows and MOD__VECTORS vectors: all sums stay in registers. rows, and the strides where A and B
   are dense, are constants of the caller. */
MOD__TARGET static inline __attribute__((__always_inline__)) int MOD__LEVEL(tile)(const int rows, float *c,
   size_t c_row, const float *a, size_t a_row, size_t a_col, const float *b, size_t b_row, int depth, int accumulate)
{
#define MOD__EACH_ROW MOD__UNROLL for (i = 0; i < MOD__ROWS; ++i) if (i < rows)
#define MOD__EACH_VECTOR MOD__UNROLL for (j = 0; j < MOD__VECTORS; ++j)
   MOD__V sum[MOD__ROWS][MOD__VECTORS];
   size_t row[MOD__ROWS];
   int i, j, q;
   MOD__EACH_ROW {
      row[i] = (size_t)i * a_row;
      if (MOD__ROWS <= 6) __asm__("" : "+r"(row[i])); /* kept in a register; twelve would be too many */
      MOD__EACH_VECTOR {
         const MOD__V zero = {0};
         sum[i][j] = zero;
         if (accumulate) sum[i][j] = MOD__LOAD(c + (size_t)i * c_row + j * MOD__LANES);
      }
   }
   _Pragma("GCC unroll 4") for (q = 0; q < depth; ++q, a += a_col, b += b_row) {
      MOD__V x[MOD__VECTORS];
      __asm__("" : "+r"(a), "+r"(b)); /* or a pointer is counted up for each row, and steps are mixed */
      MOD__EACH_VECTOR x[j] = MOD__LOAD(b + j * MOD__LANES);
      MOD__EACH_ROW {
         const float y = a[row[i]];
         MOD__EACH_VECTOR sum[i][j] = MOD__STEP(sum[i][j], y, x[j]);
      }
   }
   MOD__EACH_ROW MOD__EACH_VECTOR MOD__STORE(c + (size_t)i * c_row + j * MOD__LANES, sum[i][j]);
   return rows;
#undef MOD__EACH_ROW
#undef MOD__EACH_VECTOR
}

/* The next rows of C, as many as a tile takes; returns how many. */
MOD__TARGET static int MOD__LEVEL(tiles)(int left, float *c, size_t c_row, const float *a, size_t a_row, size_t a_col,
                                         const float *b, size_t b_row, int depth, int accumulate)
{
   if (left >= MOD__ROWS && a_col == 1 && b_row == MOD__WIDTH)
      return MOD__LEVEL(tile)(MOD__ROWS, c, c_row, a, a_row, 1, b, MOD__WIDTH, depth, accumulate);
   if (left >= MOD__ROWS)
      return MOD__LEVEL(tile)(MOD__ROWS, c, c_row, a, a_row, a_col, b, b_row, depth, accumulate);
   if (left >= MOD__ROWS / 2)
      return MOD__LEVEL(tile)(MOD__ROWS / 2, c, c_row, a, a_row, a_col, b, b_row, depth, accumulate);
   return MOD__LEVEL(tile)(1, c, c_row, a, a_row, a_col, b, b_row, depth, accumulate);
}

MOD__TARGET static void MOD__LEVEL(multiply)(const mod__product *p)
{
   const int width = MOD__WIDTH;
   float edge[MOD__ROWS * MOD__WIDTH];
   int i, j, q, r, rows;
   for (q = 0; q == 0 || q < p->k; q += MOD__BLOCK)
      for (j = 0; j < p->n; j += width) {
         const float *b = p->b + (size_t)(j / width) * p->b_panel + (size_t)q * p->b_row;
         const int depth = mod__min(p->k - q, MOD__BLOCK), accumulate = p->accumulate || q > 0;
         const size_t bytes = (size_t)mod__min(p->n - j, width) * sizeof *b;
         for (i = 0; i < p->m; i += rows) {
            const float *a = p->a + (size_t)i * p->a_row + (size_t)q * p->a_col;
            float *c = p->c + (size_t)i * p->c_row + j;
            if (p->n - j >= width) {
               rows = MOD__LEVEL(tiles)(p->m - i, c, p->c_row, a, p->a_row, p->a_col, b, p->b_row, depth, accumulate);
               continue;
            }
            if (accumulate) memset(edge, 0, sizeof edge); /* the last columns, by way of a tile of their own */
            for (r = 0; r < mod__min(p->m - i, MOD__ROWS) && accumulate; ++r)
               memcpy(edge + r * width, c + (size_t)r * p->c_row, bytes);
            rows = MOD__LEVEL(tiles)(p->m - i, edge, (size_t)width, a, p->a_row, p->a_col, b, p->b_row, depth,
                                     accumulate);
            for (r = 0; r < rows; ++r) memcpy(c + (size_t)r * p->c_row, edge + r * width, bytes);
         }
      }
}

/* The sixteen partial sums, with the n - i elements that fill no block of sixteen. */
#define MOD__FINISH(term)                                                        \
   {                                                                             \
      float part[16];                                                            \
      MOD__UNROLL for (l = 0; l < MOD__SUMS; ++l) MOD__STORE(part + l * MOD__LANES, s[l]); \
      for (l = 0; i + (size_t)l < n; ++l) part[l] += (term);                      \
      return mod__fold16(part);                                                  \
   }

MOD__TARGET static float MOD__LEVEL(sum)(const float *x, size_t n)
{
   MOD__V s[MOD__SUMS] = {{0}};
   size_t i;
   int l;
   for (i = 0; i + 16 <= n; i += 16)
      MOD__UNROLL for (l = 0; l < MOD__SUMS; ++l) s[l] += MOD__LOAD(x + i + l * MOD__LANES);
   MOD__FINISH(x[i + (size_t)l])
}

MOD__TARGET static float MOD__LEVEL(dot)(const float *x, const float *y, size_t n)
{
   MOD__V s[MOD__SUMS] = {{0}};
   size_t i;
   int l;
   for (i = 0; i + 16 <= n; i += 16)
      MOD__UNROLL for (l = 0; l < MOD__SUMS; ++l)
         s[l] += MOD__LOAD(x + i + l * MOD__LANES) * MOD__LOAD(y + i + l * MOD__LANES);
   MOD__FINISH(x[i + (size_t)l] * y[i + (size_t)l])
}

MOD__TARGET static float MOD__LEVEL(exp_row)(float *e, const float *x, size_t n, float m, float scale)
{
   MOD__V s[MOD__SUMS] = {{0}};
   float y[16];
   size_t i;
   int l;
   for (i = 0; i + 16 <= n; i += 16) {
      for (l = 0; l < 16; ++l) y[l] = mod__exp_low((x[i + (size_t)l] - m) * scale);
      MOD__UNROLL for (l = 0; l < MOD__SUMS; ++l) {
         const MOD__V v = MOD__LOAD(y + l * MOD__LANES);
         s[l] += v;
         if (e) MOD__STORE(e + i + l * MOD__LANES, v);
      }
   }
   for (l = 0; i + (size_t)l < n; ++l) {
      y[l] = mod__exp_low((x[i + (size_t)l] - m) * scale);
      if (e) e[i + (size_t)l] = y[l];
   }
   MOD__FINISH(y[l])
}
#undef MOD__FINISH

MOD__TARGET static float MOD__LEVEL(largest)(const float *x, size_t n)
{
   MOD__V m[MOD__SUMS];
   float most[16];
   size_t i;
   int l, half;
   if (n < 16) return mod__largest(x, n);
   MOD__UNROLL for (l = 0; l < MOD__SUMS; ++l) m[l] = MOD__LOAD(x + l * MOD__LANES);
   for (i = 16; i + 16 <= n; i += 16)
      MOD__UNROLL for (l = 0; l < MOD__SUMS; ++l) {
         const MOD__V y = MOD__LOAD(x + i + l * MOD__LANES);
         const MOD__LEVEL(mask) larger = m[l] > y;
         m[l] = (MOD__V)(((MOD__LEVEL(mask))m[l] & larger) | ((MOD__LEVEL(mask))y & ~larger));
      }
   MOD__UNROLL for (l = 0; l < MOD__SUMS; ++l) MOD__STORE(most + l * MOD__LANES, m[l]);
   for (l = 0; i + (size_t)l < n; ++l) most[l] = most[l] > x[i + (size_t)l] ? most[l] : x[i + (size_t)l];
   for (half = 8; half; half /= 2)
      for (l = 0; l < half; ++l) most[l] = most[l] > most[l + half] ? most[l] : most[l + half];
   return most[0];
}

MOD__TARGET static void MOD__LEVEL(adam_step)(const mod__adam *a, size_t lo, size_t hi)
{
   size_t i;
   int l;
   for (i = lo; i + MOD__LANES <= hi; i += MOD__LANES) {
      const MOD__V g = MOD__LOAD(a->g + i) * a->clip, p = MOD__LOAD(a->p + i);
      const MOD__V m = a->b1 * MOD__LOAD(a->m + i) + a->one_b1 * g;
      const MOD__V v = a->b2 * MOD__LOAD(a->v + i) + a->one_b2 * (g * g);
      float root[MOD__LANES];
      MOD__STORE(root, v * a->v_scale);
      MOD__UNROLL for (l = 0; l < MOD__LANES; l += 4) {
         MOD__LEVEL(four) *const x = (MOD__LEVEL(four) *)(root + l);
         *x = MOD__SQRT4(*x);
      }
      MOD__STORE(a->m + i, m);
      MOD__STORE(a->v + i, v);
      MOD__STORE(a->p + i, p - (a->step * m / (MOD__LOAD(root) + a->eps) + a->decay * p));
   }
   mod__adam_step(a, i, hi);
}

#define MOD__MAP_VECTORS(name, f, slope) \
   MOD__MAP_LOOPS(MOD__TARGET, MOD__LEVEL(name##_map), MOD__LEVEL(name##_map_dx), f, slope)
#define MOD__MAP_ENTRY(name, f, slope) {MOD__LEVEL(name##_map), MOD__LEVEL(name##_map_dx)},
MOD__MAPS(MOD__MAP_VECTORS)

static const mod__kernels MOD__LEVEL(kernels) = {
   MOD__WIDTH,          MOD__LEVEL(sum),      MOD__LEVEL(dot),       MOD__LEVEL(largest),
   MOD__LEVEL(exp_row), MOD__LEVEL(multiply), MOD__LEVEL(adam_step), {MOD__MAPS(MOD__MAP_ENTRY)}};

#undef MOD__MAP_VECTORS
#undef MOD__MAP_ENTRY
#undef MOD__V
#undef MOD__LOAD
#undef MOD__STORE
#undef MOD__UNROLL
#undef MOD__SUMS
#undef MOD__WIDTH
#undef MOD__LEVEL
#undef MOD__TARGET
#undef MOD__LANES
#undef MOD__ROWS
#undef MOD__VECTORS
#undef MOD__STEP
#undef MOD__FUSED

#endif /* MOD__LEVEL */

/*
   >>licence  This software is available under two licences: choose the one you prefer.

   ALTERNATIVE A - public domain (www.unlicense.org)
   This is free and unencumbered software released into the public domain. Anyone is free to copy, modify, publish,
   use, compile, sell, or distribute this software, either in source code form or as a compiled binary, for any
   purpose, commercial or non-commercial, and by any means. In jurisdictions that recognize copyright laws, the
   author or authors of this software dedicate any and all copyright interest in the software to the public domain.
   We make this dedication for the benefit of the public at large and to the detriment of our heirs and successors.
   We intend this dedication to be an overt act of relinquishment in perpetuity of all present and future rights to
   this software under copyright law.
   THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO
   THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
   AUTHORS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE,
   ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.

   ALTERNATIVE B - MIT licence
   Copyright (c) 2026 the mod.h authors
   Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
   documentation files (the "Software"), to deal in the Software without restriction, including without limitation
   the rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and
   to permit persons to whom the Software is furnished to do so, subject to the following conditions: The above
   copyright notice and this permission notice shall be included in all copies or substantial portions of the
   Software.
   THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO
   THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
   AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF
   CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS
   IN THE SOFTWARE.

   end of mod.h */
