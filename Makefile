# mod.h is one file and needs no build; this builds its examples and runs its tests. `make help` lists the targets.
# Needs gcc or clang, make, sh, libc and libm. CC=clang, CFLAGS=-O2 and the like are honoured; OpenMP is used if found.

BUILD  := build
CFLAGS ?= -O2 -g0
WARN   := -Wall -Wextra -Wshadow
STD    := -std=c99
LDLIBS := -lm

# The C++ compiler that belongs to CC: clang++ to clang, g++-12 to gcc-12, c++ to cc.
ifeq ($(origin CXX),default)
CXX := $(if $(filter cc,$(CC)),c++,$(subst gcc,g++,$(subst clang,clang++,$(CC))))
endif

# What the compilers can do is asked once, by building a small program; not for goals that build nothing.
ifneq ($(filter-out clean help,$(or $(MAKECMDGOALS),all)),)
$(shell mkdir -p $(BUILD))
HASH   := \#
PROBE  := $(BUILD)/.probe-$(shell echo $$$$)
OPENMP := $(shell printf '%s\n' '$(HASH)include <omp.h>' 'int main(void) { return omp_get_max_threads() < 1; }' \
            >$(PROBE).c; $(CC) $(CFLAGS) -fopenmp $(PROBE).c -o $(PROBE).x 2>/dev/null && ./$(PROBE).x && \
            echo -fopenmp; rm -f $(PROBE).c $(PROBE).x)
# test_session decodes in two threads: -pthread, which also links what an older libc keeps in a library of its own.
THREADS := $(shell printf '%s\n' '$(HASH)include <pthread.h>' 'static void *f(void *p) { return p; }' \
             'int main(void) { pthread_t t; return pthread_create(&t, 0, f, 0) || pthread_join(t, 0); }' \
             >$(PROBE).c; if $(CC) $(STD) $(CFLAGS) -pthread $(PROBE).c -o $(PROBE).x 2>/dev/null && ./$(PROBE).x; \
             then echo -pthread; else echo -DMOD_TEST_NO_THREADS; fi; rm -f $(PROBE).c $(PROBE).x)
HAVE_CXX := $(shell printf '%s\n' '$(HASH)include <cmath>' 'int main() { return 0; }' >$(PROBE).cc; \
              $(CXX) -std=c++11 $(PROBE).cc -o $(PROBE).x 2>/dev/null && echo yes; rm -f $(PROBE).cc $(PROBE).x)
endif
ifneq ($(filter bench $(BUILD)/bench-%,$(MAKECMDGOALS)),) # a peer to measure against
OPENBLAS := $(shell printf '%s\n' '$(HASH)include <cblas.h>' 'void openblas_set_num_threads(int);' \
              'int main(void) { float x = 1; openblas_set_num_threads(1); cblas_sscal(1, 2, &x, 1); return x != 2; }' \
              >$(PROBE).c; $(CC) $(PROBE).c -o $(PROBE).x -lopenblas 2>/dev/null && ./$(PROBE).x && \
              echo -DBENCH_OPENBLAS -lopenblas; rm -f $(PROBE).c $(PROBE).x)
endif

EXAMPLES := $(patsubst examples/%.c,$(BUILD)/%,$(wildcard examples/*.c))
# tests/test_x_f64.c is the second half of tests/test_x.c and no program.
TESTS    := $(patsubst tests/%.c,$(BUILD)/%,$(filter-out %_f64.c,$(wildcard tests/test_*.c)))

# Programs that share one object with the library in it: examples/variants/, and those of the experiments.
MEASURES := $(addprefix $(BUILD)/,learn experiments routing figures)
VARIANTS := $(filter-out %/library,$(patsubst examples/%.c,$(BUILD)/%,$(wildcard examples/variants/*.c)))

# The bits must not depend on language or level: tests/test_hash.c in each of these forms.
HASH_C   := $(foreach std,c99 gnu17,$(foreach level,O0 O2 O3,$(BUILD)/test_hash-$(std)-$(level)))
ifeq ($(filter -O2,$(CFLAGS)),-O2) # then this one is build/test_hash itself
HASH_C   := $(filter-out %-c99-O2,$(HASH_C))
endif
HASH_CXX := $(foreach level,O0 O2 O3,$(BUILD)/test_hash-c++11-$(level))
ifeq ($(wildcard tests/test_hash.c),)
HASHES :=
SKIPS  := -s 'test_hash in other forms: there is no tests/test_hash.c'
else ifeq ($(HAVE_CXX),yes)
HASHES := $(HASH_C) $(HASH_CXX)
SKIPS  :=
else
HASHES := $(HASH_C)
SKIPS  := -s 'test_hash as C++11: no C++ compiler ($(CXX))'
endif

# `make test` builds on all cores even without -j: most of its time is building.
CORES := $(or $(shell getconf _NPROCESSORS_ONLN 2>/dev/null),2)

.PHONY: all run variants programs test check bench learn experiments figures clean help FORCE
.DELETE_ON_ERROR:

all: $(EXAMPLES)

run: $(BUILD)/lm
	@./$(BUILD)/lm run

# Each trains a small model, one after the other. QUICK=1: smaller ones, in seconds. OPTIONS: such as '--threads 2'.
variants: $(VARIANTS)
	@sh examples/variants/table.sh $(BUILD)/variants $(if $(QUICK),--quick) $(OPTIONS)

programs: $(TESTS) $(HASHES) $(BUILD)/lm $(BUILD)/sensor $(VARIANTS) $(filter-out %/learn,$(MEASURES))

test:
	@$(MAKE) --no-print-directory $(if $(findstring jobserver,$(MAKEFLAGS)),,-j$(CORES)) programs
	@CC="$(CC)" CXX="$(CXX)" JOBS=$(CORES) sh tests/run.sh $(SKIPS) $(TESTS) $(HASHES) tests/docs.sh tests/lm.sh tests/variants.sh tests/experiments.sh

check:
	@bash tests/check.sh

# Plain arithmetic, then fused. What tunes OpenBLAS by hand is unset.
bench: $(BUILD)/bench-plain $(BUILD)/bench-fused
	@rm -f $(BUILD)/bench.settings; unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE OPENBLAS_NUM_THREADS OMP_NUM_THREADS; \
	for run in 'plain --seconds 140' 'fused --seconds 90'; do \
	   ./$(BUILD)/bench-$(if $(filter full,$(BENCH)),$${run%% *} --full,$$run) --settings $(BUILD)/bench.settings \
	      --json $(BUILD)/bench-$${run%% *}.json $(SHAPES:%=--shapes) $(ROWS) || exit; echo; \
	done
	@(printf '{"plain": '; cat $(BUILD)/bench-plain.json; printf ', "fused": '; cat $(BUILD)/bench-fused.json; \
	  echo '}') >$(BUILD)/bench.json; echo 'all turns of all rows: $(BUILD)/bench.json'
# A check that takes long and needs a text, so no part of `make test`. LEARN: further options, such as '--threads 4'.
ifeq ($(DATA),)
learn:
	@echo 'skipped: make learn needs a text, DATA=FILE: tinyshakespeare, which is input.txt in'
	@echo '         https://github.com/karpathy/char-rnn/tree/master/data/tinyshakespeare'
else
learn: $(BUILD)/learn
	@OMP_WAIT_POLICY=$${OMP_WAIT_POLICY:-passive} ./$(BUILD)/learn --data '$(DATA)' $(LEARN)
endif

# The paper's figures at a small scale: hours. Stopped, it goes on; it says first how long it will take.
ifeq ($(DATA),)
experiments:
	@echo 'skipped: make experiments needs a text, DATA=FILE: sh bench/experiments/text.sh makes it of the archive in'
	@echo '         Debian'"'"'s package linux-source'
else
experiments: $(BUILD)/experiments
	@OMP_WAIT_POLICY=$${OMP_WAIT_POLICY:-passive} ./$(BUILD)/experiments --data '$(DATA)' $(EXPERIMENTS)
endif

# Draws what is there of bench/experiments/*.csv; says which figures have no data yet.
figures: $(BUILD)/figures
	@./$(BUILD)/figures

clean:
	rm -rf $(BUILD)

help:
	@echo 'make         builds the examples into $(BUILD)/'
	@echo 'make run     trains a small model on text, samples from it, shows its routes (examples/lm.c)'
	@echo 'make variants   early exit, recursions, gates and others beside MoD, as programs on the public API: a table,'
	@echo '             7 to 9 minutes (QUICK=1: in seconds, and then the numbers mean nothing)'
	@echo 'make test    builds and runs the tests: one compiler is enough, under 5 minutes'
	@echo 'make check   strict builds, standards, sanitizers, symbols, other compilers and processors, some 19 minutes;'
	@echo '             what is not installed is skipped (tests/deps.sh installs it with apt)'
	@echo 'make bench   how fast it is, beside the peak of the machine, OpenBLAS and PyTorch: 8 to 9 minutes'
	@echo '             (BENCH=full: all shapes; ROWS=gemm: one row; SHAPES=1: a line for each shape;'
	@echo '             LLMC=DIR: a checkout of llm.c as a peer)'
	@echo 'make learn DATA=FILE   the slower learning check, on tinyshakespeare, see docs/results.md; goes on if stopped'
	@echo 'make experiments DATA=FILE   the runs behind the figures of docs/results.md: hours; goes on if stopped'
	@echo '             (EXPERIMENTS=--estimate: only says how long)'
	@echo 'make figures   docs/figures/*.svg from bench/experiments/*.csv'
	@echo 'make clean   removes $(BUILD)/'
	@echo 'Settings: CC=clang  CXX=clang++  CFLAGS=-O3  OPENMP= (off)  CORES=1'

FLAGS = $(CC) $(CXX) $(CFLAGS) $(OPENMP) $(THREADS) $(LDFLAGS)
# Changes when the compiler or its flags do, so that everything is built again then.
$(BUILD)/flags: FORCE
	@mkdir -p $(BUILD)
	@echo '$(FLAGS)' | cmp -s - $@ || echo '$(FLAGS)' >$@

TEST_DEPS := mod.h $(wildcard tests/*.h tests/*_f64.c examples/common/*.h) $(BUILD)/flags

$(HASH_C): $(BUILD)/test_hash-%: tests/test_hash.c $(TEST_DEPS)
	$(CC) -std=$(firstword $(subst -, ,$*)) -$(lastword $(subst -, ,$*)) $(WARN) $(OPENMP) $< -o $@ $(LDFLAGS) $(LDLIBS)

$(HASH_CXX): $(BUILD)/test_hash-%: tests/test_hash.c $(TEST_DEPS)
	$(CXX) -x c++ -std=c++11 -$(lastword $(subst -, ,$*)) $(WARN) $(OPENMP) $< -x none -o $@ $(LDFLAGS) $(LDLIBS)

$(BUILD)/test_session: private WARN += $(THREADS)
$(BUILD)/test_%: tests/test_%.c $(TEST_DEPS)
	$(CC) $(STD) $(CFLAGS) $(WARN) $(OPENMP) $< $(wildcard tests/test_$*_f64.c) -o $@ $(LDFLAGS) $(LDLIBS)

# -O2 and no -march, as a user might: not CFLAGS.
$(BUILD)/bench-fused: private WARN += -DMOD_FAST_FMA
$(BUILD)/bench-plain $(BUILD)/bench-fused: bench/bench.c mod.h $(wildcard bench/*.h) $(BUILD)/flags
	$(CC) $(STD) -O2 -g0 $(WARN) $(OPENMP) $< -o $@ $(LDFLAGS) $(OPENBLAS) $(LDLIBS)

$(BUILD)/variants/library.o: examples/variants/library.c mod.h $(BUILD)/flags
	@mkdir -p $(@D)
	$(CC) $(STD) $(CFLAGS) $(WARN) $(OPENMP) -c $< -o $@

$(VARIANTS): $(BUILD)/variants/%: examples/variants/%.c $(BUILD)/variants/library.o $(wildcard examples/*/*.h)
	$(CC) $(STD) $(CFLAGS) $(WARN) $(OPENMP) $< $(BUILD)/variants/library.o -o $@ $(LDFLAGS) $(LDLIBS)

$(BUILD)/%: examples/%.c mod.h $(wildcard examples/*.h examples/common/*.h) $(BUILD)/flags
	$(CC) $(STD) $(CFLAGS) $(WARN) $(OPENMP) $< -o $@ $(LDFLAGS) $(LDLIBS)

$(MEASURES): $(BUILD)/%: bench/%.c $(BUILD)/variants/library.o $(wildcard bench/*.h bench/experiments/*.h examples/common/*.h)
	$(CC) $(STD) $(CFLAGS) $(WARN) $(OPENMP) $< $(BUILD)/variants/library.o -o $@ $(LDFLAGS) $(LDLIBS)
