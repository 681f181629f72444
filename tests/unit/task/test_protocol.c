/* The protocol against workers that break it: small Python scripts in place of bridge/worker.py, without PyTorch.
 *
 * budget: 9 CPU-seconds */
#include "unit.h"
#include "task/forking.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/time.h"
#include "sandbox/sandbox.h"
#include "task/frame.h"
#include "task/ref.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static char script[] = "/tmp/ww_test_worker_XXXXXX";
static volatile int interrupted;
static enum ww_sandbox_level level;
static int by_fork; /* workers are forked from a process */
static struct ww_forker *forker;
static char caches[] = "/tmp/ww_test_caches_XXXXXX", own_cache[sizeof(caches) + 8];

/* Every script gets: s, the socket; read(), one request; send(body bytes, magic, version, length, fds). */
static const char prelude[] =
	"import json, os, signal, socket, struct, subprocess, sys, time\n"
	"s = socket.socket(fileno=3)\n"
	"def read():\n"
	"    h = s.recv(16, socket.MSG_WAITALL)\n"
	"    if len(h) < 16: os._exit(0)\n"
	"    return json.loads(s.recv(struct.unpack('<4sIII', h)[2], socket.MSG_WAITALL))\n"
	"def send(b, magic=b'WWBR', version=1, length=None, fds=0):\n"
	"    s.sendall(struct.pack('<4sIII', magic, version, len(b) if length is None else length, fds) + b)\n"
	"HELLO = b'{\"ok\": true, \"device\": {\"name\": \"fake\"}, \"versions\": {\"torch\": \"0\"}}'\n";

static struct ww_ref_opts opts_for(const char *body)
{
	FILE *f = fopen(script, "w");
	assert_non_null(f);
	fprintf(f, "%s%s", prelude, body);
	assert_int_equal(fclose(f), 0);
	ww_forker_close(forker);
	forker = by_fork ? open_forker(script, caches, script) : NULL;
	return (struct ww_ref_opts){ .target = WW_TARGET_CPU,
		.worker = script,
		.forker = forker,
		.cache_dir = own_cache,
		.max_request_s = 1,
		.max_load_s = 1,
		.interrupted = &interrupted,
		.max_resident_bytes = 256 << 20 };
}

static enum ww_rc open_with(const char *body, struct ww_ref **r, struct ww_err *err)
{
	const struct ww_ref_opts o = opts_for(body);
	*err = (struct ww_err)WW_ERR_INIT;
	return ww_ref_open(r, &o, err);
}

static void open_fails(const char *body, enum ww_rc rc, const char *word)
{
	struct ww_ref *r;
	struct ww_err err;
	enum ww_rc got = open_with(body, &r, &err);
	assert_null(r);
	if (got != rc || !strstr(err.msg, word))
		fail_msg("%s (%s), expected %s with \"%s\"", ww_rc_name(got), err.msg, ww_rc_name(rc), word);
	assert_null(strchr(err.msg, '\n'));
}

static void headers(void **state)
{
	(void)state;
	unsigned char b[WW_FRAME_HEADER_BYTES];
	struct ww_frame f = { 0x01020304, 7 }, g;
	struct ww_err err = WW_ERR_INIT;
	ww_frame_pack(b, &(struct ww_frame){ 0x00020304, 7 });
	assert_memory_equal(b, "WWBR\1\0\0\0\4\3\2\0\7\0\0\0", 16);
	assert_int_equal(ww_frame_parse(b, &g, &err), WW_OK);
	assert_int_equal(g.body_bytes, 0x00020304);
	assert_int_equal(g.n_fds, 7);
	ww_frame_pack(b, &f);
	assert_int_equal(ww_frame_parse(b, &g, &err), WW_ERR_PROTOCOL); /* 16 MiB + */
	ww_frame_pack(b, &(struct ww_frame){ 1, 5000 });
	assert_int_equal(ww_frame_parse(b, &g, &err), WW_ERR_PROTOCOL);
	b[4] = 2;
	assert_int_equal(ww_frame_parse(b, &g, &err), WW_ERR_PROTOCOL);
}

static enum ww_rc nothing_more_comes(void *ctx, short events, struct ww_err *err)
{
	(void)ctx, (void)events;
	return ww_err_set(err, WW_ERR_TIMEOUT, "it waited for descriptors that are lost");
}

/* Where our table has room for one of three descriptors, the kernel drops the others: nothing more is waited for. */
static void a_full_table_is_an_error_at_once(void **state)
{
	(void)state;
	unsigned char header[WW_FRAME_HEADER_BYTES];
	struct iovec bytes[] = { { header, sizeof(header) }, { (char[]){ "{}" }, 2 } }, mark = { (char[]){ "F" }, 1 };
	int sock[2], fds[3], n, next;
	struct rlimit all, few;
	json_t *body;
	struct ww_err err = WW_ERR_INIT;
	ww_frame_pack(header, &(struct ww_frame){ 2, 3 });
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sock), 0);
	assert_int_equal(ww_fdpass_send(sock[0], bytes, 2, NULL, 0, 0), sizeof(header) + 2);
	assert_int_equal(ww_fdpass_send(sock[0], &mark, 1, (int[]){ 0, 1, 2 }, 3, 0), 1);
	close(next = dup(0)); /* the lowest free one */
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &all), 0);
	few = (struct rlimit){ (rlim_t)next + 1, all.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	enum ww_rc rc = ww_frames_receive(
		&(struct ww_frames){ sock[1], nothing_more_comes, NULL, 0 }, &body, fds, 3, &n, &err);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &all), 0);
	assert_int_equal(rc, WW_ERR_PROTOCOL);
	assert_non_null(strstr(err.msg, "ulimit -n"));
	assert_null(body);
	assert_int_equal(n, 0);
	assert_int_equal(dup(0), next); /* the one that came was closed */
	close(next);
	close(sock[0]);
	close(sock[1]);
}

static void bad_messages(void **state)
{
	(void)state;
	open_fails("read(); send(b'{}', magic=b'HTTP')", WW_ERR_PROTOCOL, "no message");
	open_fails("read(); send(b'{}', version=9)", WW_ERR_PROTOCOL, "version 9");
	open_fails("read(); send(b'{}', length=17 << 20); time.sleep(60)", WW_ERR_PROTOCOL, "too many");
	open_fails("read(); send(b'{}', fds=100000)", WW_ERR_PROTOCOL, "too many");
	open_fails("read(); send(b'not json')", WW_ERR_PROTOCOL, "JSON");
	open_fails("read(); send(b'[' + b'{},' * 600000 + b'{}]')", WW_ERR_PROTOCOL, "arrays and objects");
	open_fails("read(); send(b'[1]')", WW_ERR_PROTOCOL, "ok");
	open_fails("read(); send(b'{\"ok\": 1}')", WW_ERR_PROTOCOL, "ok");
	open_fails("read(); send(b'{\"ok\": true}')", WW_ERR_PROTOCOL, "device");
	open_fails("read(); send(HELLO, fds=2); s.sendall(b'FF'); time.sleep(60)", WW_ERR_PROTOCOL, "descriptors");
	open_fails("read(); s.sendall(b'WWBR'); s.close()", WW_ERR_WORKER, "exited");
}

static void refusals_are_one_line_each(void **state)
{
	(void)state;
	open_fails(
		"read(); send(b'{\"ok\": false, \"error\": {\"kind\": \"missing\", \"message\": \"no PyTorch\\\\nhere\"}}')\ntime.sleep(9)",
		WW_ERR_MISSING, "no PyTorch here");
	open_fails("read(); send(b'{\"ok\": false}')\ntime.sleep(9)", WW_ERR_WORKER, "no reason");
}

/* A worker starts the device when it hears hello, which waits until the device may be used. */
static void hello_waits(void **state)
{
	struct ww_ref *r;
	struct ww_err err = WW_ERR_INIT;
	(void)state;
	for (int waits = 0; waits < 2; waits++) {
		struct ww_ref_opts o = opts_for(
			"print('started', flush=True); read(); print('heard', flush=True); send(HELLO)\n"
			"read()\n");
		o.waits = waits;
		assert_int_equal(ww_ref_begin(&r, &o, &err), WW_OK);
		for (int k = 0; k < 1000 && !strstr(ww_ref_log(r), waits ? "started" : "heard"); k++)
			usleep(10000);
		usleep(50000);
		assert_int_equal(strstr(ww_ref_log(r), "heard") == NULL, waits);
		assert_int_equal(ww_ref_ready(r, &err), WW_OK);
		assert_non_null(strstr(ww_ref_log(r), "heard"));
		assert_int_equal(ww_ref_ready(r, &err), WW_OK);
		ww_ref_close(r);
	}
}

static void deaths(void **state)
{
	(void)state;
	open_fails("os._exit(5)", WW_ERR_WORKER, "code 5");
	open_fails("read(); print('first'); print('the last words\\n\\n'); os._exit(5)", WW_ERR_WORKER, "the last words");
	open_fails("read(); import ctypes; ctypes.string_at(0)", WW_ERR_WORKER, "signal 11");
	open_fails("this is no python", WW_ERR_WORKER, "SyntaxError");
	struct ww_ref *r;
	struct ww_err err = WW_ERR_INIT;
	struct ww_ref_opts o = { .target = WW_TARGET_CPU, .worker = script, .python = "/nowhere/python" };
	assert_int_equal(ww_ref_open(&r, &o, &err), WW_ERR_WORKER);
	assert_non_null(strstr(err.msg, "could not be started"));
	o.python = "/bin/false";
	assert_int_equal(ww_ref_open(&r, &o, &err), WW_ERR_WORKER);
}

static pid_t first_child(pid_t pid)
{
	char path[64];
	int child = 0;
	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
	FILE *f = fopen(path, "r");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%d", &child), 1);
	fclose(f);
	return child;
}

static void hang_is_killed_with_its_children(void **state)
{
	(void)state;
	struct ww_ref *r;
	struct ww_err err;
	json_t *graph;
	const char *body = "read(); send(HELLO)\n"
					   "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
					   "read(); send(b'{\"ok\": true, \"nodes\": [], \"outputs\": []}')\n"
					   "read()\n"
					   "while True: print('x' * 1000)\n";
	assert_int_equal(open_with(body, &r, &err), WW_OK);
	assert_int_equal(ww_ref_graph(r, &graph, &err), WW_OK);
	json_decref(graph);
	pid_t worker = ww_ref_pid(r), child = first_child(worker);
	assert_true(child > 0);
	uint64_t start = ww_now_ns();
	assert_int_equal(ww_ref_graph(r, &graph, &err), WW_ERR_TIMEOUT);
	assert_true(ww_seconds_since(start) < 5);
	assert_false(ww_ref_alive(r));
	assert_int_equal(kill(worker, 0), -1);
	if (level == WW_SANDBOX_NAMESPACES)
		assert_int_equal(kill(child, 0), -1); /* gone with its namespace, although it had left the group */
	else
		kill(child, SIGKILL);
	assert_true(strlen(ww_ref_log(r)) <= 65536);
	assert_int_equal(ww_ref_graph(r, &graph, &err), WW_ERR_WORKER);
	ww_ref_close(r);
}

/* What a worker says of the graph's convolutions is said by their nodes; no other answer is. */
static void what_is_asked_of_convolutions(void **state)
{
	(void)state;
	static const struct {
		const char *answer;
		int all, a, b; /* -1: the node does not say */
	} rows[] = { { "{'a': True, 'b': False}", 1, 1, 0 }, { "{'b': True, 'c': True}", 1, -1, 1 },
		{ "{'a': None, 'b': False}", 0, -1, 0 }, { "{'a': 1}", 0, -1, -1 }, { "{}", 1, -1, -1 }, { "3", 1, -1, -1 } };
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		struct ww_ref *r;
		struct ww_err err;
		char body[256];
		int all;
		json_auto_t *g = json_pack("{s:[{s:s}, {s:s}]}", "nodes", "name", "a", "name", "b");
		const json_t *nodes = json_object_get(g, "nodes");
		snprintf(body, sizeof(body),
			"read(); send(HELLO)\nassert read()['request'] == 'tf32'\n"
			"send(json.dumps({'ok': True, 'tf32': %s}).encode()); read()\n",
			rows[i].answer);
		assert_int_equal(open_with(body, &r, &err), WW_OK);
		assert_int_equal(ww_ref_tf32(r, g, &all, &err), WW_OK);
		assert_int_equal(all, rows[i].all);
		assert_int_equal(ww_json_bool(json_array_get(nodes, 0), "tf32", -1), rows[i].a);
		assert_int_equal(ww_json_bool(json_array_get(nodes, 1), "tf32", -1), rows[i].b);
		ww_ref_close(r);
	}
}

static void memory_and_interrupts(void **state)
{
	(void)state;
	struct ww_ref *r;
	struct ww_err err;
	json_t *graph;
	struct ww_ref_opts o = opts_for("read(); send(HELLO); read()\nx = b'x' * (600 << 20)\ntime.sleep(60)\n");
	o.max_request_s = 30; /* what writes so much may take more than a second of a busy machine */
	err = (struct ww_err)WW_ERR_INIT;
	assert_int_equal(ww_ref_open(&r, &o, &err), WW_OK);
	assert_int_equal(ww_ref_graph(r, &graph, &err), WW_ERR_LIMIT);
	assert_non_null(strstr(err.msg, "256 MiB"));
	ww_ref_close(r);
	assert_int_equal(open_with("read(); send(HELLO); read(); time.sleep(60)\n", &r, &err), WW_OK);
	interrupted = 1;
	assert_int_equal(ww_ref_graph(r, &graph, &err), WW_ERR_INTERRUPTED);
	interrupted = 0;
	ww_ref_close(r);
}

/* The directory of a task's caches is on the disk of the judge's. */
static void disk_is_watched(void **state)
{
	(void)state;
	struct ww_ref *r;
	struct ww_err err = WW_ERR_INIT;
	json_t *graph;
	char cache[] = "/tmp/ww_test_cache_XXXXXX";
	assert_non_null(mkdtemp(cache));
	FILE *f = fopen(script, "w");
	assert_non_null(f);
	fprintf(f,
		"%sread(); send(HELLO); read()\n"
		"for i in range(4): open('%s/f%%d' %% i, 'wb').write(bytes(8 << 20))\n"
		"time.sleep(60)\n",
		prelude, cache);
	assert_int_equal(fclose(f), 0);
	struct ww_ref_opts o = {
		.target = WW_TARGET_CPU, .worker = script, .cache_dir = cache, .max_disk_bytes = 16 << 20, .max_request_s = 20
	};
	if (ww_ref_open(&r, &o, &err) != WW_OK)
		fail_msg("%s", err.msg);
	assert_int_equal(ww_ref_graph(r, &graph, &err), WW_ERR_LIMIT);
	assert_non_null(strstr(err.msg, "16 MiB of disk"));
	ww_ref_close(r);
	assert_int_equal(ww_fs_remove_tree(cache, &err), WW_OK);
}

/* A judge that is killed at any moment leaves no worker, and nothing that a task started. */
static void nothing_outlives_the_judge(void **state)
{
	(void)state;
	int p[2];
	pid_t pids[2] = { 0, 0 };
	assert_int_equal(pipe(p), 0);
	pid_t judge = fork();
	if (judge == 0) {
		struct ww_ref *r;
		struct ww_err err;
		const char *body = "subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
						   "read(); send(HELLO); signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: pass\n";
		if (open_with(body, &r, &err) != WW_OK)
			_exit(1);
		pids[0] = ww_ref_pid(r);
		pids[1] = first_child(pids[0]);
		if (write(p[1], pids, sizeof(pids)) < 0)
			_exit(1);
		for (;;)
			pause();
	}
	assert_int_equal(read(p[0], pids, sizeof(pids)), (ssize_t)sizeof(pids));
	assert_int_equal(kill(judge, SIGKILL), 0);
	assert_int_equal(waitpid(judge, NULL, 0), judge);
	for (int i = 0; i < (level == WW_SANDBOX_NAMESPACES ? 2 : 1); i++) {
		int tries = 0;
		while (kill(pids[i], 0) == 0 && tries++ < 500)
			usleep(10000);
		assert_int_equal(kill(pids[i], 0), -1);
	}
	if (level != WW_SANDBOX_NAMESPACES)
		kill(pids[1], SIGKILL);
	close(p[0]);
	close(p[1]);
}

static void what_a_task_does_at_load_is_the_tasks(void **state)
{
	(void)state;
	struct ww_ref *r;
	struct ww_err err;
	struct ww_task task = { .name = "mine", .source = "x", .source_bytes = 1 };
	static const char *const bodies[] = { "os._exit(3)", "time.sleep(60)", "x = b'x' * (600 << 20); time.sleep(60)",
		"os.kill(os.getpid(), signal.SIGABRT)" };
	for (size_t i = 0; i < WW_ARRAY_LEN(bodies); i++) {
		char body[200];
		snprintf(body, sizeof(body), "read(); send(HELLO); read()\n%s\n", bodies[i]);
		assert_int_equal(open_with(body, &r, &err), WW_OK);
		assert_int_equal(ww_ref_load(r, &task, 1, &err), WW_ERR_TASK);
		assert_non_null(strstr(err.msg, "mine.py"));
		assert_false(ww_ref_alive(r));
		ww_ref_close(r);
	}
	/* ... but not when another process kills the worker.  The task itself cannot, being process 1. */
	assert_int_equal(open_with("read(); send(HELLO); time.sleep(60)\n", &r, &err), WW_OK);
	assert_int_equal(kill(ww_ref_pid(r), SIGKILL), 0);
	assert_int_equal(ww_ref_load(r, &task, 1, &err), WW_ERR_WORKER);
	ww_ref_close(r);
	assert_int_equal(open_with("read(); send(HELLO); read(); os.kill(os.getpid(), 9)\n", &r, &err), WW_OK);
	assert_int_equal(ww_ref_load(r, &task, 1, &err), level == WW_SANDBOX_NAMESPACES ? WW_ERR_TASK : WW_ERR_WORKER);
	ww_ref_close(r);
}

/* Buffers with descriptors of the worker's own (on the cpu target they are ours), or of impossible size. */
static void lying_buffers(void **state)
{
	(void)state;
	static const char *const tables[] = { "{\\\"bytes\\\": 8, \\\"alloc_bytes\\\": 4096}",
		"{\\\"bytes\\\": -8, \\\"alloc_bytes\\\": 4096}", "{\\\"bytes\\\": 8, \\\"alloc_bytes\\\": 4}",
		"{\\\"bytes\\\": 8}" };
	for (size_t i = 0; i < WW_ARRAY_LEN(tables); i++) {
		struct ww_ref *r;
		struct ww_err err;
		struct ww_ref_buffers b;
		char body[500];
		snprintf(body, sizeof(body),
			"read(); send(HELLO); read()\nsend(b\"{\\\"ok\\\": true, \\\"buffers\\\": [%s]}\"%s)\n"
			"%stime.sleep(60)\n",
			tables[i], i ? "" : ", fds=1",
			i ? ""
			  : "import array\ns.sendmsg([b'F'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [0]))])\n");
		assert_int_equal(open_with(body, &r, &err), WW_OK);
		assert_int_equal(ww_ref_buffers(r, &b, &err), WW_ERR_PROTOCOL);
		assert_int_equal(b.n, 0);
		assert_false(ww_ref_alive(r));
		ww_ref_close(r);
	}
}

/* What a task file may not do: write where others read, see another task's cache, reach the network, hide memory.  Its
 * own directories are writable, and it can start programs.  tests/unit/sandbox/test_attacks.c tries the rest. */
/* A task that has taken its worker over may send any graph: it is refused as that task's fault, in one line. */
static void impossible_graphs_are_the_tasks(void **state)
{
	static const char *const graphs[][2] = { { "'nodes': []", "no nodes or no outputs" },
		{ "'inputs': [{'name': 'x', 'dtype': 'float32', 'sizes': [1 << 60, 9], 'strides': [9, 1]}], 'nodes': [], "
		  "'outputs': []",
			"input x: a size or stride is out of range" },
		{ "'nodes': [{'name': 'a', 'op': 'aten.relu.default', 'args': [{'ref': 'a'}], 'kwargs': {}, 'out': []}], "
		  "'outputs': []",
			"node a (aten.relu.default): it refers to a name that is not defined" } };
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(graphs); i++) {
		char body[1024];
		struct ww_ref *r;
		struct ww_err err;
		json_t *graph = NULL;
		snprintf(body, sizeof(body),
			"read(); send(HELLO); read()\nsend(json.dumps({'ok': True, %s}).encode()); read()\n", graphs[i][0]);
		assert_int_equal(open_with(body, &r, &err), WW_OK);
		if (ww_ref_graph(r, &graph, &err) != WW_ERR_TASK || !strstr(err.msg, graphs[i][1]))
			fail_msg("%s (%s), expected \"%s\"", ww_rc_name(err.rc), err.msg, graphs[i][1]);
		assert_non_null(strstr(err.msg, "the task's graph is not one that PyTorch makes"));
		assert_null(graph);
		ww_ref_close(r);
	}
}

static void worker_is_confined(void **state)
{
	(void)state;
	struct ww_ref *r;
	struct ww_err err;
	char beside[sizeof(caches) + 8], words[64], made[sizeof(own_cache) + 8], written[sizeof(script) + 8];
	snprintf(beside, sizeof(beside), "%s/other", caches);
	snprintf(made, sizeof(made), "%s/made", own_cache);
	int fd = open(beside, O_CREAT | O_WRONLY, 0600);
	assert_true(fd >= 0);
	close(fd);
	snprintf(words, sizeof(words), "%s%s", ww_sandbox_level_name(level), beside);
	setenv("TZ", words, 1); /* a variable that a worker inherits as it is */
	enum ww_rc rc = open_with(
		"import errno, mmap\n"
		"read()\n"
		"bad = []\n"
		"def refused(what, f):\n"
		"    try: f(); bad.append(what)\n"
		"    except OSError: pass\n"
		"level = os.environ['TZ'].split('/')[0]\n"
		"if level in ('namespaces', 'landlock'):\n"
		"    try: open(__file__ + '.new', 'w') # into a /tmp of its own, perhaps\n"
		"    except OSError: pass\n"
		"    refused('write here', lambda: open(__file__, 'a'))\n"
		"    refused('remove', lambda: os.unlink(__file__))\n"
		"    refused('passwords', lambda: open('/etc/shadow'))\n"
		"    refused('read beside', lambda: open(os.environ['TZ'][len(level):]))\n"
		"refused('network', lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM))\n"
		"refused('local socket', lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))\n"
		"refused('device node', lambda: os.mknod('node', 0o20600, os.makedev(1, 3)))\n"
		"refused('memory file', lambda: os.memfd_create('x'))\n"
		"refused('shared memory', lambda: mmap.mmap(-1, 4096))\n"
		"open('own', 'w').write('x')\n"
		"open(os.path.dirname(os.environ['TZ'][len(level):]) + '/own/made', 'w').write('x')\n"
		"subprocess.run(['true'], check=True)\n"
		"if level == 'namespaces': open('/dev/shm/own', 'w').write('x')\n"
		"if level == 'namespaces':\n"
		"    try:\n"
		"        for i in range(65537): os.close(os.open(f'f{i}', os.O_CREAT | os.O_WRONLY))\n"
		"        bad.append('files without end')\n"
		"    except OSError as e:\n"
		"        if e.errno != errno.ENOSPC or i < 60000: bad.append(f'file {i}: {e}')\n"
		"send(HELLO if not bad else json.dumps({'ok': False, 'error': {'kind': 'task', 'message': str(bad)}}).encode())\n"
		"read()\n",
		&r, &err);
	if (rc != WW_OK)
		fail_msg("%s", err.msg);
	ww_ref_close(r);
	snprintf(written, sizeof(written), "%s.new", script);
	assert_int_equal(access(written, F_OK), level >= WW_SANDBOX_LANDLOCK ? -1 : access(written, F_OK));
	assert_int_equal(unlink(made), 0);
	unlink(beside);
	unsetenv("TZ");
}

/* The process that forks imports what exporting needs only when it is told to; then its workers have it. */
static void export_is_imported_later(void **s)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_ref *r;
	assert_int_equal(open_with("read(); send(HELLO); read()", &r, &err), WW_OK);
	ww_ref_close(r);
	assert_false(ww_forker_exports(forker));
	for (int twice = 0; twice < 2; twice++) {
		assert_int_equal(ww_forker_import(forker, &err), WW_OK);
		assert_true(ww_forker_exports(forker));
	}
	struct ww_ref_opts o = { .target = WW_TARGET_CPU, .worker = script, .forker = forker, .cache_dir = own_cache };
	assert_int_equal(ww_ref_open(&r, &o, &err), WW_OK);
	ww_ref_close(r);
}

int main(void)
{
	int fd = mkstemp(script);
	if (fd < 0)
		return 1;
	close(fd);
	level = ww_sandbox_probe();
	const struct CMUnitTest tests[] = { cmocka_unit_test(headers), cmocka_unit_test(a_full_table_is_an_error_at_once),
		cmocka_unit_test(bad_messages), cmocka_unit_test(refusals_are_one_line_each), cmocka_unit_test(hello_waits),
		cmocka_unit_test(deaths), cmocka_unit_test(hang_is_killed_with_its_children),
		cmocka_unit_test(what_is_asked_of_convolutions), cmocka_unit_test(memory_and_interrupts),
		cmocka_unit_test(disk_is_watched), cmocka_unit_test(nothing_outlives_the_judge),
		cmocka_unit_test(what_a_task_does_at_load_is_the_tasks), cmocka_unit_test(lying_buffers),
		cmocka_unit_test(impossible_graphs_are_the_tasks), cmocka_unit_test(worker_is_confined) };
	const struct CMUnitTest forked[] = { cmocka_unit_test(bad_messages), cmocka_unit_test(hello_waits),
		cmocka_unit_test(deaths), cmocka_unit_test(hang_is_killed_with_its_children),
		cmocka_unit_test(memory_and_interrupts), cmocka_unit_test(nothing_outlives_the_judge),
		cmocka_unit_test(what_a_task_does_at_load_is_the_tasks), cmocka_unit_test(worker_is_confined),
		cmocka_unit_test(export_is_imported_later) };
	struct ww_err ignored;
	if (!mkdtemp(caches))
		return 1;
	snprintf(own_cache, sizeof(own_cache), "%s/own", caches);
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	by_fork = level == WW_SANDBOX_NAMESPACES;
	if (by_fork)
		failed += cmocka_run_group_tests(forked, NULL, NULL);
	ww_forker_close(forker);
	unlink(script);
	(void)!ww_fs_remove_tree(caches, &ignored);
	return failed;
}
