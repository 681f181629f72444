/* The process that holds a solution in a PyTorch form: what it computes, what it cannot do, what its end looks like.
 * One start of PyTorch serves all; every case is a fresh candidate on a task of one multiplication and one parameter.
 * budget: 12 CPU-seconds */
#include "nobody.h"
#include "unit.h"

#include "base/time.h"
#include "host/timed_call.h"
#include "judge/forms/forms.h"
#include "judge/forms/outputs.h"
#include "task/ref.h"

#include <limits.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

enum { N = 1024 };
static struct ww_candidates *candidates;
static uint64_t memory = 64ull << 30; /* what a candidate limits itself to; the judge watches its own limit */
static const char task[] =
	"import torch\n"
	"class Model(torch.nn.Module):\n"
	"    def __init__(self, k):\n        super().__init__()\n        self.weight = torch.nn.Parameter(torch.rand(1024))\n        self.k = k\n"
	"    def forward(self, x, b):\n        return self.k * x * self.weight + b\n"
	"def get_inputs(): return [torch.rand(1024), 3.0]\n"
	"def get_init_inputs(): return [2]\n";
static const char head[] =
	"import os, sys, torch\n"
	"def harness():\n" /* the variables of the function that answers the judge, as any candidate can find them */
	"    f = sys._getframe()\n    while f.f_code.co_name != 'serve': f = f.f_back\n    return f.f_locals\n"
	"class ModelNew(torch.nn.Module):\n"
	"    def __init__(self, k):\n        super().__init__()\n        self.weight = torch.nn.Parameter(torch.rand(1024))\n        self.k = k\n";
static const char honest[] = "    def forward(self, x, b):\n        return self.k * x * self.weight + b\n";

struct rig {
	struct ww_candidate *c;
	float *x, *w, y[N]; /* y: what the last call's output held when it ended */
	int fds[2];
	struct ww_candidate_answer a;
	struct ww_run_result res;
};

static float *buffer(int *fd)
{
	*fd = memfd_create("buffer", MFD_CLOEXEC);
	assert_true(*fd >= 0 && ftruncate(*fd, 4096) == 0);
	float *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

static json_t *row(const char *role, const char *name)
{
	return json_pack("{s:s, s:s, s:s, s:[i], s:[i], s:i}", "role", role, "name", name, "dtype", "float32", "sizes", N,
		"strides", 1, "alloc_bytes", 4096);
}

static void open_rig_with(struct rig *r, const char *source, const float *w)
{
	struct ww_err err = WW_ERR_INIT;
	memset(r, 0, sizeof(*r));
	ww_candidate_answer_init(&r->a);
	r->x = buffer(&r->fds[0]);
	r->w = buffer(&r->fds[1]);
	for (int i = 0; i < N; i++)
		r->x[i] = (float)i, r->w[i] = w ? w[i] : (float)(i % 7), r->y[i] = -1;
	if (ww_candidate_new(&r->c, candidates, WW_CANDIDATE_CALLED, &err) != WW_OK)
		fail_msg("%s", err.msg);
	json_t *q = json_pack("{s:s, s:s, s:I, s:[], s:i, s:i, s:I, s:[{s:s, s:b}]}", "request", "attach", "task", task,
		"model_seed", (json_int_t)5, "on_host", "device", 0, "threads", 1, "memory_bytes", (json_int_t)memory, "params",
		"name", "weight", "mutated", 0);
	assert_non_null(q);
	json_object_set_new(
		q, "buffers", json_pack("[o, o, o]", row("input", "x"), row("param", "weight"), row("output", "output0")));
	assert_int_equal(ww_candidate_ask(r->c, q, r->fds, 2, 20, &r->a, &r->res, &err), WW_OK);
	if (r->res.kind != WW_RUN_OK)
		fail_msg("%s %s", r->res.text, r->a.text.p);
	q = json_pack("{s:s, s:s, s:[{s:s, s:s}], s:i, s:i}", "request", "setup", "form", "kernelbench", "files", "path",
		"model_new.py", "text", source, "arch", 0, "jobs", 1);
	assert_non_null(q);
	assert_int_equal(ww_candidate_ask(r->c, q, NULL, 0, 20, &r->a, &r->res, &err), WW_OK);
}

static void open_rig(struct rig *r, const char *source) { open_rig_with(r, source, NULL); }

static int take(struct rig *r)
{
	static const struct ww_tensor y = { .rank = 1, .itemsize = 4, .size = { N }, .stride = { 1 }, .numel = N };
	void *to = r->y;
	char why[128];
	return ww_outputs_take(ww_candidate_pid(r->c), r->a.places, r->a.n_places, &y, 1, &to, why, sizeof(why));
}

static void call(struct rig *r, double limit_s)
{
	struct ww_err err = WW_ERR_INIT;
	assert_int_equal(ww_candidate_call(r->c, limit_s, &r->a, &r->res, &err), WW_OK);
	if (r->res.kind == WW_RUN_OK)
		assert_true(take(r));
}

static void close_rig(struct rig *r)
{
	pid_t pid = ww_candidate_pid(r->c);
	ww_candidate_free(r->c);
	for (int i = 0; i < 4000 && kill(pid, 0) == 0; i++)
		usleep(5000);
	assert_int_equal(kill(pid, 0), -1);
	ww_candidate_answer_release(&r->a);
	munmap(r->x, 4096);
	munmap(r->w, 4096);
	for (int i = 0; i < 2; i++)
		close(r->fds[i]);
}

static int right(const struct rig *r)
{
	for (int i = 0; i < N; i++)
		if (r->y[i] != 2 * r->x[i] * r->w[i] + 3)
			return 0;
	return 1;
}

static char *source_of(const char *body)
{
	static char text[16384];
	snprintf(text, sizeof(text), "%s%s", head, body);
	return text;
}

static void computes(void **state)
{
	(void)state;
	struct rig r;
	open_rig(&r, source_of(honest));
	if (r.res.kind != WW_RUN_OK)
		fail_msg("%s %s", r.res.text, r.a.text.p);
	for (int k = 0; k < 5; k++) {
		call(&r, 10);
		assert_int_equal(r.res.kind, WW_RUN_OK);
		assert_true(r.res.elapsed_ns > 0 && r.res.elapsed_ns < 1000000000u);
		assert_true(right(&r));
		for (int i = 0; i < N; i++) /* new parameters and inputs, without a word */
			r.x[i] += 1, r.w[i] = (float)((i + k) % 5), r.y[i] = -1;
	}
	struct ww_err err = WW_ERR_INIT;
	assert_int_equal(
		ww_candidate_ask(r.c, json_pack("{s:s}", "request", "trace"), NULL, 0, 20, &r.a, &r.res, &err), WW_OK);
	assert_int_equal(r.res.kind, WW_RUN_OK);
	json_t *aten = json_object_get(r.a.body, "aten");
	assert_int_equal(json_array_size(aten), 2);
	assert_string_equal(json_string_value(json_array_get(json_array_get(aten, 1), 0)), "aten.mul");
	close_rig(&r);
}

/* Another name for the parameter: found by the value that the seed gives it, and then followed like any other. */
static void pairs_by_value(void **state)
{
	(void)state;
	static const char renamed[] =
		"import torch\nclass ModelNew(torch.nn.Module):\n    def __init__(self, k):\n        super().__init__()\n"
		"        self.scale = torch.nn.Parameter(torch.rand(1024))\n"
		"    def forward(self, x, b):\n        return self.scale.detach().clone() if x[0] < 0 else 2 * x * self.scale + b\n";
	struct rig r;
	float made[N];
	open_rig(&r, renamed); /* the shared weight is another: no counterpart, the value made is kept */
	assert_int_equal(r.res.kind, WW_RUN_OK);
	assert_string_equal(json_string_value(json_array_get(json_object_get(r.a.body, "unmatched"), 0)), "scale");
	call(&r, 10);
	assert_int_equal(r.res.kind, WW_RUN_OK);
	assert_false(right(&r));
	r.x[0] = -1;
	call(&r, 10);
	memcpy(made, r.y, sizeof(made));
	close_rig(&r);
	open_rig_with(&r, renamed, made);
	assert_int_equal(json_array_size(json_object_get(r.a.body, "unmatched")), 0);
	for (int i = 0; i < N; i++)
		r.w[i] = (float)(i % 3);
	call(&r, 10);
	assert_true(right(&r));
	close_rig(&r);
}

struct attack {
	const char *name, *body;
	int in_setup;
	enum ww_run_kind kind;
	const char *says;
};

/* What each tries to do, and how it must end.  Where nothing is expected but a wrong or a right answer, kind is OK. */
static const struct attack attacks[] = {
	{ "raises", "    def forward(self, x, b):\n        raise ValueError('no\\x1b[31m\\nreward 3')\n", 0, WW_RUN_FAULT,
		"| reward 3" },
	{ "no ModelNew", "    pass\ndel ModelNew\n", 1, WW_RUN_FAULT, "defines no ModelNew" },
	{ "syntax", "    def forward(self, x, b:\n", 1, WW_RUN_FAULT, "SyntaxError" },
	{ "exits with 0", "    def forward(self, x, b):\n        import os\n        print('PASS'); os._exit(0)\n", 0,
		WW_RUN_DIED, "exited with code 0" },
	{ "crashes", "    def forward(self, x, b):\n        import ctypes\n        ctypes.string_at(8)\n", 0, WW_RUN_DIED,
		"signal 11" },
	{ "writes an input", "    def forward(self, x, b):\n        return x.add_(1)\n", 0, WW_RUN_DIED, "signal 11" },
	{ "never ends", "    def forward(self, x, b):\n        while True: pass\n", 0, WW_RUN_LATE, "no end" },
	{ "sleeps", "    def forward(self, x, b):\n        import time; time.sleep(60)\n", 0, WW_RUN_LATE, "no end" },
	{ "too much memory",
		"    def forward(self, x, b):\n        a = []\n        while True: a.append(bytearray(b'x' * (1 << 24)))\n", 0,
		WW_RUN_NOMEM, "memory" },
	{ "fork bomb", "    def forward(self, x, b):\n        import os\n        while True: os.fork()\n", 0, WW_RUN_NOMEM,
		"memory" },
	{ "many processes",
		"    def forward(self, x, b):\n        import subprocess\n        while True: subprocess.Popen(['/bin/sleep', '60'])\n",
		0, WW_RUN_REFUSED, "temporarily unavailable" },
	{ "leaves a process",
		"    def forward(self, x, b):\n        import subprocess; subprocess.Popen(['/bin/sleep', '60'])\n        return x + b\n",
		0, WW_RUN_REFUSED, "left a process" },
	{ "leaves a thread of a process that looks dead",
		"    def forward(self, x, b):\n        import ctypes, threading, time\n        if os.fork() == 0:\n"
		"            threading.Thread(target=time.sleep, args=(60,)).start(); ctypes.CDLL(None).syscall(60, 0)\n        return x + b\n",
		0, WW_RUN_REFUSED, "left a process" },
	{ "wrong shape", "    def forward(self, x, b):\n        return x[1:]\n", 0, WW_RUN_FAULT, "output 0 is" },
	{ "wrong number", "    def forward(self, x, b):\n        return x, x\n", 0, WW_RUN_FAULT, "returned 2 tensors" },
	{ "lazy subclass",
		"    def forward(self, x, b):\n        class T(torch.Tensor): pass\n        return (x * 2).as_subclass(T)\n", 0,
		WW_RUN_FAULT, "not a torch.Tensor" },
	{ "values in a flag, not in memory",
		"    def forward(self, x, b):\n        return torch._neg_view(-(2 * x * self.weight + b)) * 0\n", 0, WW_RUN_OK,
		"" },
	{ "no memory at all", "    def forward(self, x, b):\n        return (x * 2).to_mkldnn()\n", 0, WW_RUN_FAULT,
		"output 0 is not strided" },
	{ "forged byte",
		"    def forward(self, x, b):\n        for fd in range(3, 300):\n            try: os.write(fd, b'd')\n            except OSError: pass\n"
		"        return x + 0\n",
		0, WW_RUN_REFUSED, "answered for the harness" },
	{ "forged answer",
		"    def forward(self, x, b):\n        for fd in range(3, 300):\n            try: os.write(fd, b'd12345678')\n            except OSError: pass\n"
		"        import time; time.sleep(60)\n",
		0, WW_RUN_REFUSED, "answered for the harness" },
	{ "ahead, in setup",
		"    def forward(self, x, b):\n        return self.k * x * self.weight + b\nfor fd in range(3, 300):\n    try: os.write(fd, b'a12345678')\n"
		"    except OSError: pass\n",
		1, WW_RUN_REFUSED, "answered for the harness" },
	{ "protocol",
		"    def forward(self, x, b):\n        f = harness(); f['sock'].sendall(b'?' + f['number'])\n        import time; time.sleep(60)\n",
		0, WW_RUN_DIED, "protocol" },
	{ "half an answer",
		"    def forward(self, x, b):\n        f = harness(); f['sock'].sendall(b'd' + f['number'][:7])\n        import time; time.sleep(60)\n",
		0, WW_RUN_LATE, "no end" },
	{ "a frame without end",
		"    def forward(self, x, b):\n        f = harness(); f['sock'].sendall(b'e' + f['number'] + b'WWBR')\n        import time; time.sleep(60)\n",
		0, WW_RUN_LATE, "no end" }
};

/* The other half of the limit: memory that is refused at once, before anybody looks. */
static void memory_is_refused(void **state)
{
	(void)state;
	struct rig r;
	memory = 900ull << 20;
	open_rig(&r, source_of("    def forward(self, x, b):\n        return torch.zeros(1 << 29)\n"));
	call(&r, 10);
	memory = 64ull << 30;
	assert_int_equal(r.res.kind, WW_RUN_FAULT);
	assert_non_null(strstr(r.a.text.p, "memory"));
	close_rig(&r);
}

/* A child that has not come to its exec yet is its parent's memory, and no more of it. */
static void memory_counts_once(void **state)
{
	(void)state;
	struct rig r;
	open_rig(&r,
		source_of(
			"    def forward(self, x, b):\n        import ctypes\n        held = torch.ones(400 << 20, dtype=torch.uint8)\n"
			"        libc, stack = ctypes.CDLL(None), ctypes.create_string_buffer(1 << 16)\n"
			"        top = ctypes.c_void_p(ctypes.addressof(stack) + (1 << 16) - 64)\n"
			"        vm, vfork, sigchld = 0x100, 0x4000, 17\n"
			"        assert libc.clone(libc.usleep, top, vm | vfork | sigchld, ctypes.c_void_p(300000)) > 0\n"
			"        return self.k * x * self.weight + b\n"));
	call(&r, 10);
	if (r.res.kind != WW_RUN_OK)
		fail_msg("%s %s", r.res.text, r.a.text.p);
	assert_true(right(&r));
	close_rig(&r);
}

/* By fork(), vfork(), clone() and threads: as many as may be, and not one more. */
static const char all_that_may_be[] =
	"    def forward(self, x, b):\n"
	"        import ctypes, errno, glob, signal, subprocess, threading, time\n"
	"        libc = ctypes.CDLL(None, use_errno=True)\n"
	"        def is_refused(start):\n"
	"            try: start(); return False\n"
	"            except OSError as e: assert e.errno == errno.EAGAIN, e\n"
	"            except RuntimeError as e: assert 'new thread' in str(e), e\n"
	"            return True\n"
	"        def clone():\n" /* each on a stack of its own, in this memory */
	"            stacks.append(ctypes.create_string_buffer(4096))\n"
	"            top = ctypes.c_void_p((ctypes.addressof(stacks[-1]) + 4000) & ~15)\n"
	"            if libc.clone(libc.pause, top, 0x100 | signal.SIGCHLD, None) < 0:\n"
	"                raise OSError(ctypes.get_errno(), 'clone')\n"
	"        def shell():\n" /* it forks until it cannot; then its children are counted, and it is gone */
	"            text = 'while :; do sleep 60 & done'\n"
	"            assert subprocess.run(['sh', '-c', text], stderr=subprocess.DEVNULL).returncode\n"
	"            raise OSError(errno.EAGAIN, 'fork')\n"
	"        tasks = lambda: len(glob.glob('/proc/[0-9]*/task/*'))\n"
	"        stacks, end = [], threading.Event()\n"
	"        ways = {'fork': (shell, 0), 'clone': (clone, 0),\n"
	"                'vfork': (lambda: os.posix_spawn('/bin/sleep', ['sleep', '60'], {}), 0),\n"
	"                'threads': (lambda: threading.Thread(target=end.wait).start(), 1)}\n"
	"        for name, (start, are_threads) in ways.items():\n"
	"            while not is_refused(start): pass\n"
	"            there = tasks()\n"
	"            assert abs(there - %d) <= (name == 'fork'), (name, there)\n"
	"            end.set() if are_threads else os.kill(-1, signal.SIGKILL)\n"
	"            try:\n"
	"                while not are_threads: os.waitpid(-1, 0)\n"
	"            except ChildProcessError: pass\n"
	"        return self.k * x * self.weight + b\n";

static void processes_are_limited(void **state)
{
	(void)state;
	struct rig r;
	char body[sizeof(all_that_may_be) + 32];
	snprintf(body, sizeof(body), all_that_may_be, ww_candidates_max_tasks());
	open_rig(&r, source_of(body));
	call(&r, 20);
	if (r.res.kind != WW_RUN_OK)
		fail_msg("%s %s", r.res.text, r.a.text.p);
	assert_true(right(&r));
	close_rig(&r);
}

/* As many threads as a machine of many processors gives PyTorch, and a pool of the solution's own. */
static void thread_pools_fit(void **state)
{
	(void)state;
	struct rig r;
	open_rig(&r,
		source_of("    def forward(self, x, b):\n        import time\n"
				  "        from concurrent.futures import ThreadPoolExecutor\n"
				  "        torch.set_num_threads(64)\n        (torch.rand(1 << 20) + 1).sum()\n"
				  "        with ThreadPoolExecutor(128) as p: list(p.map(lambda i: time.sleep(0.02), range(128)))\n"
				  "        return self.k * x * self.weight + b\n"));
	call(&r, 20);
	if (r.res.kind != WW_RUN_OK)
		fail_msg("%s %s", r.res.text, r.a.text.p);
	assert_true(right(&r));
	close_rig(&r);
}

static void ends(void **state)
{
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(attacks); i++) {
		const struct attack *t = &attacks[i];
		struct rig r;
		open_rig(&r, source_of(t->body));
		if (!t->in_setup && r.res.kind == WW_RUN_OK)
			call(&r, t->kind == WW_RUN_LATE ? 0.5 : 10);
		if (r.res.kind != t->kind || (!strstr(r.res.text, t->says) && !strstr(r.a.text.p, t->says)))
			fail_msg("%s: kind %d, \"%s\", \"%s\"", t->name, (int)r.res.kind, r.res.text, r.a.text.p);
		assert_null(strchr(r.a.text.p, 27));
		assert_false(right(&r));
		close_rig(&r);
	}
}

/* Python that tries to get out; each line of `probe` raises when it is held back. */
static const char probes[] =
	"import os, socket, ctypes, torch\ngot = []\n"
	"def held(name, f, *a):\n"
	"    try: f(*a)\n"
	"    except (OSError, PermissionError, ProcessLookupError): return True\n"
	"    got.append(name); return False\n"
	"def in_child(f, *a):\n" /* which leads no group */
	"    pid = os.fork()\n"
	"    if pid == 0: os._exit(0 if held('group', f, *a) else 1)\n"
	"    return os.waitpid(pid, 0)[1] == 0\n"
	"def probe():\n"
	"    ok = held('tcp', lambda: socket.socket().connect(('127.0.0.1', 80)))\n"
	"    ok &= held('packets', lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))\n"
	"    ok &= held('netlink', lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW))\n"
	"    if len(open('/proc/net/unix').readlines()) > 1: got.append('sees sockets of others'); ok = False\n"
	"    ok &= held('write /usr', open, '/usr/x', 'w')\n"
	"    ok &= held('write bridge', open, __import__('wwbridge').__file__, 'a')\n"
	"    ok &= held('write /dev', open, '/dev/x', 'w')\n"
	"    ok &= held('home', os.listdir, '/home')\n"
	"    ok &= held('var', os.listdir, '/var')\n"
	"    ok &= held('root', open, '/root/.bashrc')\n"
	"    ok &= held('etc shadow', open, '/etc/shadow')\n"
	"    ok &= held('mount', lambda: check(ctypes.CDLL(None, use_errno=True).mount(b'none', b'/tmp', b'tmpfs', 0, None)))\n"
	"    ok &= held('unshare', lambda: check(ctypes.CDLL(None, use_errno=True).unshare(0x10000000)))\n"
	"    ok &= held('chroot', os.chroot, '/tmp')\n"
	"    ok &= held('mknod', os.mknod, '/tmp/n', 0o60644, os.makedev(8, 0))\n"
	"    ok &= held('nice', os.nice, -5)\n"
	"    ok &= held('time', lambda: __import__('time').clock_settime(0, 0))\n"
	"    ok &= held('memfd', os.memfd_create, 'x')\n"
	"    ok &= in_child(os.setsid) and in_child(os.setpgid, 0, 0)\n"
	"    if any(' rw-s ' in line for line in open('/proc/self/maps')): got.append('memory that the judge reads'); ok = False\n"
	"    others = [p for p in os.listdir('/proc') if p.isdigit() and int(p) != os.getpid()]\n"
	"    got.extend(others)\n"
	"    if torch.cuda._is_in_bad_fork(): got.append('forked from a process that had asked for the GPU'); ok = False\n"
	"    secrets = [k for k in os.environ if 'KEY' in k or 'WARPWRIGHT' in k]\n"
	"    got.extend(secrets)\n"
	"    return ok and not others and os.getpid() == 1 and not secrets\n"
	"def check(rc):\n"
	"    if rc != 0: raise OSError('held')\n";
static const char reports[] =
	"    def forward(self, x, b):\n        if not probe(): raise RuntimeError('got out: %s' % got)\n"
	"        return self.k * x * self.weight + b\n";

static void stays_inside(void **state)
{
	(void)state;
	struct rig r;
	char text[16384];
	snprintf(text, sizeof(text), "%s%s%s", probes, head, reports);
	open_rig(&r, text);
	if (r.res.kind != WW_RUN_OK)
		fail_msg("%s %s", r.res.text, r.a.text.p);
	call(&r, 20);
	if (r.res.kind != WW_RUN_OK)
		fail_msg("%s %s", r.res.text, r.a.text.p);
	assert_true(right(&r));
	close_rig(&r);
}

/* A thread that goes on after the call: it stands while the judge looks. */
static void stands_between_calls(void **state)
{
	(void)state;
	struct rig r;
	open_rig(&r,
		source_of(
			"    def forward(self, x, b):\n        import threading, time\n"
			"        def late():\n            while True:\n                y.fill_(7); time.sleep(0.001)\n"
			"        y = torch.zeros(1024)\n        threading.Thread(target=late, daemon=True).start()\n        return y\n"));
	call(&r, 10);
	assert_int_equal(r.res.kind, WW_RUN_OK);
	float at_end = r.y[0];
	char path[64], line[512] = "";
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)ww_candidate_pid(r.c));
	usleep(50000);
	FILE *f = fopen(path, "r");
	assert_non_null(f);
	assert_non_null(fgets(line, sizeof(line), f));
	fclose(f);
	assert_int_equal(strrchr(line, ')')[2], 'T');
	assert_true(take(&r) && r.y[0] == at_end);
	close_rig(&r);
}

/* A thread in a system call that copies much: it is stopped when that ends, long after the answer, and is paid for. */
static void the_kernels_work_is_counted(void **state)
{
	(void)state;
	struct rig r;
	open_rig(&r,
		source_of(
			"    def forward(self, x, b):\n        import threading, time\n        y = self.k * x * self.weight + b\n"
			"        big, to = torch.empty(1 << 29, dtype=torch.uint8), bytearray(1 << 20)\n"
			"        fd = os.open('/proc/self/mem', os.O_RDONLY)\n"
			"        threading.Thread(target=os.preadv, args=(fd, [to] * 512, big.data_ptr()), daemon=True).start()\n"
			"        time.sleep(0.02)\n        return y\n"));
	uint64_t used_ns = ww_process_used_ns(ww_candidate_pid(r.c));
	call(&r, 10);
	assert_int_equal(r.res.kind, WW_RUN_OK);
	assert_true(right(&r));
	used_ns = ww_process_used_ns(ww_candidate_pid(r.c)) - used_ns;
	assert_true(used_ns > 50000000u);
	assert_true(r.res.elapsed_ns > used_ns - used_ns / 20);
	call(&r, (double)used_ns * 0.3e-9);
	assert_int_equal(r.res.kind, WW_RUN_LATE);
	close_rig(&r);
}

/* A right answer, early, by a candidate that has looked the number of the question up: it ends that call, and nothing
 * has been computed then.  The harness's own answer to it comes behind, in the socket or still to be sent, and is no
 * answer to the next. */
static void answers_twice(void **state)
{
	(void)state;
	struct rig r;
	open_rig(&r,
		source_of(
			"    def forward(self, x, b):\n        f = harness(); f['sock'].sendall(b'd' + f['number'] + "
			"__import__('struct').pack('<IIqq', 2, 0, x.data_ptr(), 1))\n        return self.k * x * self.weight + b\n"));
	assert_int_equal(r.res.kind, WW_RUN_OK);
	call(&r, 10);
	assert_int_equal(r.res.kind, WW_RUN_OK);
	call(&r, 10);
	assert_int_equal(r.res.kind, WW_RUN_REFUSED);
	assert_non_null(strstr(r.res.text, "more than once"));
	close_rig(&r);
}

/* Where the system allows no sandbox that would hold, there is no judgement. */
static void needs_namespaces(void **state)
{
	(void)state;
	struct ww_err err = WW_ERR_INIT;
	struct ww_candidates *none = NULL;
	struct ww_candidates_opts o = { .target = WW_TARGET_CPU };
	setenv("WARPWRIGHT_SANDBOX", "landlock", 1);
	enum ww_rc rc = ww_candidates_open(&none, &o, &err);
	unsetenv("WARPWRIGHT_SANDBOX");
	assert_int_equal(rc, WW_ERR_MISSING);
	assert_null(none);
	assert_non_null(strstr(err.msg, "namespaces"));
}

/* Starts of a process, after the first: what a solution costs beyond its own work. */
static void starts_are_cheap(void **state)
{
	(void)state;
	struct ww_err err = WW_ERR_INIT;
	struct ww_candidate *c;
	uint64_t start = ww_now_ns();
	for (int k = 0; k < 10; k++) {
		assert_int_equal(ww_candidate_new(&c, candidates, WW_CANDIDATE_CALLED, &err), WW_OK);
		ww_candidate_free(c);
	}
	print_message("a candidate's process: %.1f ms\n", ww_seconds_since(start) * 100);
	assert_true(ww_seconds_since(start) < 10);
}

/* As of a program that is found on PATH: resources lie at "its directory/../", and its directory is visible. */
static void stand_on_path(void)
{
	char dir[PATH_MAX], list[2 * PATH_MAX], home[PATH_MAX + 8];
	assert_non_null(realpath("/proc/self/exe", dir));
	*strrchr(dir, '/') = 0; /* build/tests */
	snprintf(home, sizeof(home), "%s/../..", dir);
	snprintf(list, sizeof(list), "%s:%s", dir, getenv("PATH") ? getenv("PATH") : "/usr/bin:/bin");
	setenv("PATH", list, 1);
	setenv("WARPWRIGHT_HOME", home, 1);
}

static int open_candidates(void **state)
{
	(void)state;
	stand_on_path();
	struct ww_err err = WW_ERR_INIT;
	struct ww_candidates_opts o = { .target = WW_TARGET_CPU, .max_resident_bytes = 1ull << 30 };
	enum ww_rc rc = ww_candidates_open(&candidates, &o, &err);
	if (rc == WW_ERR_MISSING) {
		print_message("# SKIP %s\n", err.msg);
		exit(77);
	}
	if (rc != WW_OK)
		print_message("%s\n", err.msg);
	return rc == WW_OK ? 0 : -1;
}

static int close_candidates(void **state)
{
	(void)state;
	ww_candidates_close(candidates);
	return 0;
}

static int as_nobody(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(computes), cmocka_unit_test(processes_are_limited) };
	return cmocka_run_group_tests_name("judge/candidate of an ordinary user", tests, open_candidates, close_candidates);
}

int main(void)
{
	char python[PATH_MAX];
	struct ww_err ignored = WW_ERR_INIT;
	const struct CMUnitTest tests[] = { cmocka_unit_test(computes), cmocka_unit_test(pairs_by_value),
		cmocka_unit_test(ends), cmocka_unit_test(processes_are_limited), cmocka_unit_test(thread_pools_fit),
		cmocka_unit_test(memory_is_refused), cmocka_unit_test(memory_counts_once), cmocka_unit_test(stays_inside),
		cmocka_unit_test(stands_between_calls), cmocka_unit_test(the_kernels_work_is_counted),
		cmocka_unit_test(answers_twice), cmocka_unit_test(needs_namespaces), cmocka_unit_test(starts_are_cheap) };
	int failed = cmocka_run_group_tests_name("judge/candidate", tests, open_candidates, close_candidates);
	return failed + (ww_ref_find_python(python, &ignored) == WW_OK ? unit_as_nobody(as_nobody, python) : 0);
}
