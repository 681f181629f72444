/* turns.c - problems of an evaluation on their way through the turns of one GPU, with sleeps in place of the work.
 *
 *     cc -Isrc -Iinclude bench/eval/turns.c src/judge/turns.c build/libww_{host,base}.a -ljansson -lm -o turns
 *     ./turns PARALLEL SECONDS [profile] [late] [alone] [after]
 *
 * src/judge/turns.c decides who has the device; stages last as long as bench/results/eval.md says, 0.6 to 1.4 times by
 * chance.  The driver starts contexts one after another.  The words bring back what an evaluation did before:
 *
 *     profile  each of the ten slowest so far is profiled at once
 *     late     the process that times the exported call starts when the solution has been timed
 *     alone    that process starts the device at any time, and then has it for itself
 *     after    torch.compile begins when the solution has been built
 *
 * Standard output: problems that ended in each ten seconds, then their number a minute behind the first. */
#include "judge/turns.h"

#include "base/time.h"
#include "judge/internal.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_PARALLEL = 64, MAX_PROBLEMS = 4096, WINDOW_S = 10 };

static struct ww_judge judge = { .opts.target = WW_TARGET_CUDA, .facts.uuid = "model" };
static pthread_mutex_t driver = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int profile, late, alone, after;
static double speed[MAX_PROBLEMS], ended_s[MAX_PROBLEMS], waited_s, taken_s;
static int n_ended;
static atomic_int ending;
static uint64_t start_ns;

/* Stand-ins for the functions of the judge that turns.c calls. */
void ww_judge_progress(const struct ww_judge *j, const char *stage) { (void)j, (void)stage; }
enum ww_rc ww_judge_interrupted(const struct ww_judge *j, struct ww_err *err) { return (void)j, (void)err, WW_OK; }

static void pass(unsigned *seed, double s) { usleep((useconds_t)(s * (0.6 + 0.8 * rand_r(seed) / RAND_MAX) * 1e6)); }

static void take(struct ww_turn *t, enum ww_turn_kind kind)
{
	struct ww_err err = WW_ERR_INIT;
	uint64_t asked = ww_now_ns();
	if (ww_turn_take(t, &judge, kind, &err) != WW_OK)
		abort();
	pthread_mutex_lock(&lock);
	waited_s += ww_seconds_since(asked);
	pthread_mutex_unlock(&lock);
}

static void context(unsigned *seed)
{
	pthread_mutex_lock(&driver);
	pass(seed, 0.2);
	pthread_mutex_unlock(&driver);
}

/* Rounds: each has a draw, a call of both sides, a comparison. */
static void rounds(struct ww_turn *t, int n, unsigned *seed)
{
	for (int k = 0; k < n; k++) {
		pass(seed, 0.004);
		ww_turn_call(t);
		pass(seed, 0.003);
		ww_turn_called(t);
		pass(seed, 0.006);
	}
}

static void draws(struct ww_turn *t, unsigned *seed)
{
	for (int k = 0; k < 5; k++) {
		ww_turn_step(t);
		pass(seed, 0.06);
	}
}

static void open_task(struct ww_turn *t, unsigned *seed)
{
	pass(seed, 0.4); /* a fork of a process that has imported PyTorch */
	take(t, WW_TURN_LOAD);
	context(seed);
	pass(seed, 0.7); /* load, graph, buffers */
	ww_turn_drop(t);
}

static double left(double s) { return s > 0 ? s : 0; }

/* The process that times the exported call has begun at `began_ns`. */
static void exported_call(struct ww_turn *t, uint64_t began_ns, unsigned *seed)
{
	pass(seed, left(5.5 - ww_seconds_since(began_ns)));
	if (alone) {
		context(seed);
		take(t, WW_TURN_ALONE);
		pass(seed, 0.8);
		return;
	}
	take(t, WW_TURN_LOAD);
	context(seed);
	pass(seed, 0.4);
	take(t, WW_TURN_TIMED);
	for (int k = 0; k < 35; k++) {
		pass(seed, 0.002);
		ww_turn_call(t);
		pass(seed, 0.001);
		ww_turn_called(t);
	}
	pass(seed, 0.1); /* it ends */
}

static void judge_it(struct ww_turn *t, uint64_t compiling_ns, unsigned *seed)
{
	pass(seed, 0.9); /* NVRTC */
	uint64_t began_ns = ww_now_ns();
	pass(seed, left(2.5 - (after ? 0 : ww_seconds_since(compiling_ns))));
	take(t, WW_TURN_LOAD);
	pass(seed, 0.9); /* degenerate, the baselines' first calls */
	take(t, WW_TURN_SHARED);
	pass(seed, 0.15); /* the runner loads it */
	draws(t, seed);
	take(t, WW_TURN_TIMED);
	ww_turn_call(t);
	pass(seed, 0.1); /* repeats, warming up */
	ww_turn_called(t);
	rounds(t, 24, seed);
	ww_turn_drop(t);
	exported_call(t, late ? ww_now_ns() : began_ns, seed);
	ww_turn_drop(t);
}

static int is_slow(double mine)
{
	int slower = 0;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < n_ended; i++)
		slower += speed[i] < mine;
	pthread_mutex_unlock(&lock);
	return slower < 10;
}

static void solve(unsigned *seed)
{
	struct ww_turn t = { 0 };
	double mine = (double)rand_r(seed) / RAND_MAX;
	open_task(&t, seed);
	uint64_t opened_ns = ww_now_ns();
	pass(seed, 0.1); /* the planner */
	judge_it(&t, opened_ns, seed);
	if (profile && is_slow(mine)) {
		take(&t, WW_TURN_ALONE);
		pass(seed, 2);
		ww_turn_drop(&t);
	}
	take(&t, WW_TURN_SHARED); /* the other rule */
	pass(seed, 0.15);
	draws(&t, seed);
	ww_turn_drop(&t);
	pthread_mutex_lock(&lock);
	if (n_ended < MAX_PROBLEMS && !ending) {
		speed[n_ended] = mine;
		ended_s[n_ended++] = ww_seconds_since(start_ns);
		taken_s += ww_seconds_since(opened_ns);
	}
	pthread_mutex_unlock(&lock);
	take(&t, WW_TURN_LOAD); /* its worker ends */
	pass(seed, 0.05);
	ww_turn_drop(&t);
}

static void *problems(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg * 7919u + 1;
	while (!ending)
		solve(&seed);
	return NULL;
}

static void print(int seconds, int parallel)
{
	int windows[MAX_PROBLEMS] = { 0 };
	for (int i = 0; i < n_ended; i++)
		windows[(int)ended_s[i] / WINDOW_S]++;
	for (int k = 0; k < seconds / WINDOW_S; k++)
		printf("%d ", windows[k]);
	double s = n_ended > 1 ? ended_s[n_ended - 1] - ended_s[0] : 0;
	printf("\n%d problems, %d at a time, the first after %.1f s; from then on %.1f a minute; %.1f s each from its open "
		   "task on, %.1f waiting for turns\n",
		n_ended, parallel, n_ended ? ended_s[0] : 0, s > 0 ? (n_ended - 1) / s * 60 : 0,
		n_ended ? taken_s / n_ended : 0, n_ended ? waited_s / n_ended : 0);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *word;
		int *to;
	} words[] = { { "profile", &profile }, { "late", &late }, { "alone", &alone }, { "after", &after } };
	pthread_t threads[MAX_PARALLEL];
	int parallel = argc > 1 ? atoi(argv[1]) : 0, seconds = argc > 2 ? atoi(argv[2]) : 0;
	if (parallel < 1 || parallel > MAX_PARALLEL || seconds < WINDOW_S)
		return fprintf(stderr, "usage: turns PARALLEL SECONDS [profile] [late] [alone] [after]\n"), 2;
	for (int i = 3; i < argc; i++)
		for (size_t k = 0; k < sizeof(words) / sizeof(*words); k++)
			*words[k].to |= !strcmp(argv[i], words[k].word);
	start_ns = ww_now_ns();
	for (int i = 0; i < parallel; i++)
		pthread_create(&threads[i], NULL, problems, (void *)(uintptr_t)(i + 1));
	sleep((unsigned)seconds);
	ending = 1;
	for (int i = 0; i < parallel; i++)
		pthread_join(threads[i], NULL);
	print(seconds, parallel);
	return 0;
}
