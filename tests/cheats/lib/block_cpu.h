/* The kernel ABI of <ww/cpu.h> without the cookbook behind it, which takes longer to compile than any of these. */
struct ww_block {
	long long x, y, z, nx, ny, nz;
	int thread, threads;
	void *shared;
	long long shared_bytes;
};
#define WW_KERNEL(name)                                                                                                   \
	void name(const struct ww_block *b, void *const *arg);                                                            \
	void name(const struct ww_block *b __attribute__((unused)), void *const *arg __attribute__((unused)))
#define WW_ARG(type, i) (*(type const *)arg[i])
