/* main.h - around the nodes of a plan: its buffers between pages that nobody may touch, inputs that nobody may write,
 * and what a caller does between two nodes, over stdin and stdout. */
#pragma once

#include "device.h"
#include "library.h"

#include <csignal>
#include <unistd.h>

namespace host
{
enum { PAGE = 4096, EDGE = 16 /* buffers end at most so many bytes ahead of a page's end */ };

inline void beyond(int)
{
	static const char text[] = "an access beyond a buffer, or a write to an input\n";
	_Exit(write(2, text, sizeof(text) - 1) < 0 ? 1 : 3);
}

struct buffer {
	char *p;
	long long bytes;

	void make(long long n)
	{
		const size_t room = (size_t)(n + EDGE - 1) / EDGE * EDGE, pages = (room + PAGE - 1) / PAGE * PAGE;
		char *at = (char *)mmap(0, pages + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (at == MAP_FAILED || mprotect(at + PAGE, pages, PROT_READ | PROT_WRITE))
			fail("no memory for a buffer");
		bytes = n;
		p = at + PAGE + pages - room;
		memset(at + PAGE, 0xff, pages);
	}
	void get()
	{
		if (fread(p, 1, (size_t)bytes, stdin) != (size_t)bytes)
			fail("the input ends early");
	}
	void put() const { fwrite(p, 1, (size_t)bytes, stdout); }
	void protect() const
	{
		const uintptr_t first = (uintptr_t)p / PAGE * PAGE;
		mprotect((void *)first, ((uintptr_t)p + (size_t)bytes - first + PAGE - 1) / PAGE * PAGE, PROT_READ);
	}
};

/* The first n are inputs and parameters. */
inline void open_buffers(buffer *b, const long long *size, int all, int n)
{
	static char stack[1 << 16];
	const stack_t other = { .ss_sp = stack, .ss_size = sizeof(stack) };
	struct sigaction act = {};
	act.sa_handler = beyond;
	act.sa_flags = SA_ONSTACK;
	sigaltstack(&other, 0);
	sigaction(SIGSEGV, &act, 0);
	sigaction(SIGBUS, &act, 0);
	for (int i = 0; i < all; i++) {
		b[i].make(size[i]);
		if (i < n) {
			b[i].get();
			b[i].protect();
		}
	}
}

/* Hands out what is read, and takes what is written. */
template <class R, class W> void outside(const R &read, const W &written)
{
	for (buffer *b : read)
		b->put();
	fflush(stdout);
	for (buffer *b : written)
		b->get();
}
} // namespace host
