/* count.cc - what the sampled blocks of a launch ask of memory, per warp and instruction.
 *
 * An access is known by where it was called from (the instruction), by its thread, and by how often that thread was
 * there before: the same number in all lanes is one instruction of a warp.  Its sectors (32 bytes) are what the
 * first-level cache has to look up; those that are not in it (a cache of the block's share, in the order in which warps
 * that advance evenly would ask) come from the second level.  Stores go through.
 *
 * Instructions are those of the host: one thread of the first block is stepped through, a trap after each instruction.
 * Divisions are counted by their opcode, those by constants are none. */
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <algorithm>
#include <csignal>
#include <sys/mman.h>
#include <ucontext.h>
#include <unordered_map>
#include <vector>

namespace counted
{
/* CALL: instructions around each call of the sanitizer. */
enum { CALL = 4, SAMPLES = 6, STEPPED = 0, WARP = 32, MAX_ACCESSES = 6 << 20 };
const long long SECTOR = 32;

struct buffer { /* as in count.h */
	char *p;
};
struct span {
	char *lo;
	long long bytes;
};
struct access {
	unsigned where, nth, seq; /* instruction, how often before in this thread, the thread's access number */
	unsigned short thread, size;
	unsigned char store;
	long long at; /* in the arena */
};
struct traffic {
	double asked, sectors, missed; /* bytes, sectors of instructions, sectors that the second level gives or takes */
};
struct where {
	unsigned id;
	std::vector<unsigned> times; /* by thread */
};

static std::vector<span> buffers;
static char *lo, *hi;
static const unsigned *running;
static std::vector<access> log_;
static std::unordered_map<uintptr_t, where> places;
static std::vector<unsigned> seq;
static struct {
	const char *name;
	long long blocks, shared;
	unsigned threads, cluster;
	int sampled, cut;
	std::vector<traffic> read, write;
	double loads, stores; /* of threads, in all blocks that ran */
	unsigned trips, most; /* of one thread: visits of one instruction, loads */
	long long instructions, divisions, divisions64, calls;
} now;

/* ---- Stepping ---------------------------------------------------------------------------------------------------- */

static volatile int stepping;
static char *code_lo, *code_hi;

static void trapped(int, siginfo_t *, void *context)
{
	ucontext_t *u = (ucontext_t *)context;
	const unsigned char *at = (const unsigned char *)u->uc_mcontext.gregs[REG_RIP];
	int wide = 0;

	if (!stepping || *running != STEPPED || now.instructions > 1000000) {
		u->uc_mcontext.gregs[REG_EFL] &= ~0x100ll;
		return;
	}
	if ((char *)at < code_lo || (char *)at >= code_hi)
		return;
	now.instructions++;
	while (*at == 0x66 || (*at & 0xf0) == 0x40)
		wide |= (*at++ & 0xf8) == 0x48;
	if (*at == 0xf7 && (at[1] >> 3 & 6) == 6)
		(wide ? now.divisions64 : now.divisions)++;
}

void step(int on)
{
	stepping = on && !now.sampled && *running == STEPPED;
	if (stepping)
		asm volatile("pushfq\n\torq $0x100, (%%rsp)\n\tpopfq" ::: "memory", "cc");
}

/* ---- The sanitizer's calls --------------------------------------------------------------------------------------- */

static inline void note(const void *p, unsigned size, int store, void *from)
{
	char *at = (char *)p;

	if (at < lo || at >= hi) {
		now.calls += stepping;
		return;
	}
	const unsigned t = *running;
	const int was = stepping;
	stepping = 0;
	if (was)
		now.calls++;
	where &w = places[(uintptr_t)from];
	if (w.times.empty()) {
		w.id = (unsigned)places.size();
		w.times.resize(1024);
	}
	const unsigned nth = w.times[t]++;
	(store ? now.stores : now.loads)++;
	if (log_.size() < MAX_ACCESSES)
		log_.push_back({ w.id, nth, seq[t]++, (unsigned short)t, (unsigned short)size, (unsigned char)store, at - lo });
	else
		now.cut = 1;
	if (was)
		step(1);
}

#define FROM __builtin_return_address(0)
#define BOTH(n)                                                                                                        \
	extern "C" void __tsan_read##n(void *p) { note(p, n, 0, FROM); }                                                   \
	extern "C" void __tsan_write##n(void *p) { note(p, n, 1, FROM); }                                                  \
	extern "C" void __tsan_unaligned_read##n(void *p) { note(p, n, 0, FROM); }                                         \
	extern "C" void __tsan_unaligned_write##n(void *p) { note(p, n, 1, FROM); }
BOTH(1)
BOTH(2)
BOTH(4)
BOTH(8)
BOTH(16)
extern "C" void __tsan_read_range(void *p, unsigned long n) { note(p, (unsigned)n, 0, FROM); }
extern "C" void __tsan_write_range(void *p, unsigned long n) { note(p, (unsigned)n, 1, FROM); }
extern "C" void __tsan_init() {}
extern "C" void __tsan_func_entry(void *) {}
extern "C" void __tsan_func_exit() {}

/* ---- Buffers ----------------------------------------------------------------------------------------------------- */

void reserve(buffer *out, const long long *bytes, unsigned n, char *code, char *code_end)
{
	long long all = 0;

	for (unsigned i = 0; i < n; i++)
		all += (bytes[i] + 4095) / 4096 * 4096 + 4096;
	lo = (char *)mmap(0, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	hi = lo + all;
	char *at = lo;
	for (unsigned i = 0; i < n; i++) {
		buffers.push_back({ at, bytes[i] });
		out[i].p = at;
		at += (bytes[i] + 4095) / 4096 * 4096 + 4096;
	}
	code_lo = code;
	code_hi = code_end;
	struct sigaction a = {};
	a.sa_sigaction = trapped;
	a.sa_flags = SA_SIGINFO;
	sigaction(SIGTRAP, &a, 0);
}

void fill(unsigned i, long long below, int itemsize)
{
	unsigned r = 1;

	for (long long b = 0; b < buffers[i].bytes; b += itemsize) {
		r = r * 1664525u + 1013904223u;
		const long long v = (long long)(r >> 8) * below >> 24;
		memcpy(buffers[i].lo + b, &v, (size_t)itemsize);
	}
}

/* ---- A launch ---------------------------------------------------------------------------------------------------- */

void begin(const char *name, long long blocks, unsigned threads, unsigned cluster, long long shared, const unsigned *r)
{
	now = {};
	now.name = name;
	now.blocks = blocks;
	now.threads = threads;
	now.cluster = cluster;
	now.shared = shared;
	now.read.resize(buffers.size());
	now.write.resize(buffers.size());
	running = r;
}

int sample(long long blocks, long long *at)
{
	const int n = (int)std::min<long long>(blocks, SAMPLES);

	for (int i = 0; i < n; i++)
		at[i] = blocks <= SAMPLES ? i : (long long)((i + 0.5) * (double)blocks / n);
	return n;
}

/* First-level cache of a block: a sector stays until so many others have come. */
struct cache {
	std::unordered_map<long long, long long> seen;
	long long come, room;
	int hit(long long sector)
	{
		auto s = seen.find(sector);
		if (s != seen.end() && come - s->second < room)
			return 1;
		seen[sector] = come++;
		return 0;
	}
};

static unsigned buffer_of(long long at)
{
	unsigned l = 0, h = (unsigned)buffers.size();

	while (h - l > 1) {
		const unsigned m = (l + h) / 2;
		(buffers[m].lo - lo <= at ? l : h) = m;
	}
	return l;
}

/* All sectors of one instruction of a warp, in group[0..n). */
static void one(const access *group, size_t n, cache &l1)
{
	long long sector[WARP * 4];
	size_t k = 0;
	traffic &t = (group->store ? now.write : now.read)[buffer_of(group->at)];

	for (size_t i = 0; i < n; i++) {
		t.asked += group[i].size;
		for (long long s = group[i].at / SECTOR; s <= (group[i].at + group[i].size - 1) / SECTOR && k < WARP * 4; s++)
			sector[k++] = s;
	}
	std::sort(sector, sector + k);
	k = (size_t)(std::unique(sector, sector + k) - sector);
	t.sectors += (double)k;
	for (size_t i = 0; i < k; i++)
		t.missed += group->store || !l1.hit(sector[i]);
}

void block(void (*run)(unsigned), unsigned threads)
{
	const unsigned resident = std::max(1u, std::min(2048 / std::max(threads, 32u), 32u));
	cache l1 = { {}, 0, (192 << 10) / SECTOR / resident };

	log_.clear();
	places.clear();
	seq.assign(1024, 0);
	run(threads);
	std::vector<std::pair<unsigned, unsigned>> order; /* first seq, first access */
	std::sort(log_.begin(), log_.end(), [](const access &a, const access &b) {
		const unsigned wa = a.thread / WARP, wb = b.thread / WARP;
		return wa != wb          ? wa < wb
			: a.where != b.where ? a.where < b.where
			: a.nth != b.nth     ? a.nth < b.nth
								 : a.thread < b.thread;
	});
	for (size_t i = 0, j; i < log_.size(); i = j) {
		unsigned first = log_[i].seq;
		for (j = i; j < log_.size() && log_[j].thread / WARP == log_[i].thread / WARP &&
			log_[j].where == log_[i].where && log_[j].nth == log_[i].nth;
			j++)
			first = std::min(first, log_[j].seq);
		order.push_back({ first, (unsigned)i });
	}
	std::sort(order.begin(), order.end());
	for (auto &o : order) {
		size_t j = o.second, i = j;
		while (j < log_.size() && log_[j].thread / WARP == log_[i].thread / WARP && log_[j].where == log_[i].where &&
			log_[j].nth == log_[i].nth)
			j++;
		one(&log_[i], j - i, l1);
	}
	for (auto &p : places)
		for (unsigned n : p.second.times)
			now.trips = std::max(now.trips, n);
	for (unsigned n : seq)
		now.most = std::max(now.most, n);
	now.sampled++;
}

static void print(const char *what, const std::vector<traffic> &t)
{
	const double scale = (double)now.blocks / now.sampled;
	const char *comma = "";

	printf(", \"%s\": [", what);
	for (size_t i = 0; i < t.size(); i++)
		if (t[i].asked > 0) {
			printf("%s[%zu, %.0f, %.0f, %.0f]", comma, i, t[i].asked * scale, t[i].sectors * (double)SECTOR * scale,
				t[i].missed * (double)SECTOR * scale);
			comma = ", ";
		}
	printf("]");
}

void end()
{
	const double threads = (double)now.threads * now.sampled;

	printf("{\"launch\": \"%s\", \"blocks\": %lld, \"threads\": %u, \"cluster\": %u, \"shared\": %lld", now.name,
		now.blocks, now.threads, now.cluster, now.shared);
	print("read", now.read);
	print("write", now.write);
	printf(", \"loads\": %.2f, \"stores\": %.2f, \"most\": %u, \"trips\": %u, \"instructions\": %lld, \"divisions\": "
		   "%lld, \"divisions64\": %lld, \"cut\": %d}\n",
		now.loads / threads, now.stores / threads, now.most, now.trips,
		std::max(0ll, now.instructions - CALL * now.calls), now.divisions, now.divisions64, now.cut);
	fflush(stdout);
}
} // namespace counted
