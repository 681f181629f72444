/* System calls without an instruction of one's own, which would be refused when it is compiled: the C library has them,
 * not far from the one function that a kernel may import from it.  Memory at an address that is known beforehand, and
 * the runner's own protocol as its kernels could speak it (src/judge/run/proto.h). */
void *memcpy(void *, const void *, unsigned long);
static inline const unsigned char *system_call(void)
{
	const unsigned char *p = (const unsigned char *)(void *)memcpy;
	while (p[0] != 0x0f || p[1] != (0x0a >> 1) || p[2] != 0xc3) /* and a return behind it */
		p--;
	return p;
}
static inline long sys(long n, long a, long c, long d, long e, long f, long g)
{
	const unsigned char *gate = system_call();
	register long r10 __asm__("r10") = e, r8 __asm__("r8") = f, r9 __asm__("r9") = g;
	long out;
	__asm__ volatile("sub $128, %%rsp\n\tcall *%8\n\tadd $128, %%rsp" /* not over the red zone */
		: "=a"(out)
		: "a"(n), "D"(a), "S"(c), "d"(d), "r"(r10), "r"(r8), "r"(r9), "b"(gate)
		: "rcx", "r11", "memory");
	return out;
}
#define SYS_READ 0
#define SYS_WRITE 1
#define SYS_MMAP 9
#define SYS_NANOSLEEP 35
#define SYS_SOCKET 41
#define SYS_FORK 57
#define SYS_KILL 62
#define SYS_EXIT_GROUP 231
#define SYS_OPENAT 257
/* A page (or more) that stays for the life of the process: *fresh is 1 when this call made it. */
static inline void *keep(long bytes, int *fresh)
{
	char *at = (char *)0x5a0000000000;
	long r = sys(SYS_MMAP, (long)at, bytes, 3, 0x100022, -1, 0); /* anonymous, private, fixed, not over another */
	*fresh = r == (long)at;
	return at;
}
static inline void nap(long us)
{
	long t[2] = { us / 1000000, us % 1000000 * 1000 };
	sys(SYS_NANOSLEEP, (long)t, 0, 0, 0, 0, 0);
}
enum { OP_PREPARE = 5, OP_GO = 6, KIND_OK = 0, KIND_FAULT = 3, KIND_BROKEN = 8 };
struct frame { /* tests/unit/judge/test_owned.c holds it to the protocol */
	unsigned magic, op, n_fds, bytes;
	struct {
		unsigned kind, made, differs, contradicted;
		unsigned long digest;
		double device_us, stamp_us, call_us;
		char text[480];
	} r;
};
static inline void answer(unsigned op, unsigned kind, const char *text)
{
	struct frame f = { 0x314e5257, op, 0, sizeof(f.r), { kind, 0, 0, 0, 0, 0.001, 0.001, 0.001, { 0 } } };
	for (int i = 0; text[i] && i < 479; i++)
		f.r.text[i] = text[i];
	sys(SYS_WRITE, 3, (long)&f, sizeof(f), 0, 0, 0);
}
/* The next request's operation; its payload is read away. */
static inline unsigned next_request(void)
{
	unsigned head[4] = { 0 };
	char rest[256];
	sys(SYS_READ, 3, (long)head, 16, 0, 0, 0);
	if (head[3] && head[3] <= sizeof(rest))
		sys(SYS_READ, 3, (long)rest, head[3], 0, 0, 0);
	return head[1];
}
