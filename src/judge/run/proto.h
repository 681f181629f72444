/* proto.h - the protocol of judge and runner, and the interface of a runner's back end.
 *
 * A runner is a disposable process of our own binary (`warpwright __runner TARGET DEVICE THREADS`, its socket is
 * descriptor 3) that holds one device and replays one plan at a time.  Judge and runner talk over a socket pair of type
 * SOCK_STREAM: one request, one reply, never two requests in flight.  Every frame is
 *
 *     struct ww_run_head       16 bytes: magic, operation, number of descriptors, bytes that follow
 *     payload                  at most WW_RUN_MAX_PAYLOAD bytes
 *     descriptors              as SCM_RIGHTS beside the head's first byte
 *
 * and every reply's payload is one struct ww_run_reply (HELLO: followed by struct ww_run_facts).  The order of a run:
 *
 *     HELLO                    the device's facts
 *     LOAD                     image, binary and symbol map come in; modules are loaded, names looked up
 *     BIND, one a buffer       inputs and parameters are mapped read-only, outputs (cpu: scratch too) read-write
 *     READY                    cuda: scratch is allocated; everything that can be prepared is
 *     { PREPARE?  GO }         poison and flush; run once; look at the guard bytes (cpu: the judge does, owned.h).
 *                              Where PyTorch runs nodes of the plan, one GO for each part between them
 *     REPEAT                   cuda: poison, run and digest the outputs, up to n times; then check the guard bytes
 *     PROFILE                  run the plan a few times more and say what each node took (profile.h); its reply is
 *                              followed by struct ww_run_profile and its rows, and nothing of the runner is used after
 *     UNLOAD                   back to the state after HELLO (the judge keeps only cuda runners, docs/design/rules.md,
 *                              section 3)
 *
 * On the cpu target PREPARE and GO are two requests because the judge owns the clock: PREPARE's reply says that
 * everything untimed is over, then the judge looks at its clock, sends GO and waits for the reply.  On cuda the reply
 * of GO carries the time between two events around the graph launch; host code of the candidate does not exist there,
 * so the runner can be believed.  There GO says what is to be prepared: each request that uses the GPU waits until the
 * GPU has changed from the process that used it last to this one, which takes longer than many a kernel.
 *
 * Both ends are of one binary on one machine, so structs travel as they lie in memory.  The judge nevertheless treats
 * what a cpu runner sends as hostile (a candidate's native code lives in it): replies have one size, texts are cut and
 * cleaned, no number of theirs is used as a time or as an index. */
#pragma once

#include "judge/image.h"
#include "judge/run/profile.h"

#include <stddef.h>
#include <stdint.h>

#define WW_RUN_MAGIC 0x314e5257u	/* "WRN1" */
#define WW_RUN_ABI 7
enum { WW_RUN_MAX_PAYLOAD = 4 << 20, WW_RUN_MAX_FDS = 4, WW_RUN_SOCKET_FD = 3 };

enum ww_run_op {
	WW_RUN_HELLO = 1,
	WW_RUN_LOAD,
	WW_RUN_BIND,
	WW_RUN_READY,
	WW_RUN_PREPARE,
	WW_RUN_GO,
	WW_RUN_UNLOAD,
	WW_RUN_CLOSE,
	WW_RUN_PROFILE,
	WW_RUN_REPEAT
};

/* How an operation ended.  All but OK and BROKEN are the candidate's fault. */
enum ww_run_kind {
	WW_RUN_OK = 0,
	WW_RUN_REFUSED,     /* the plan asks for what no plan may have here (shared memory, residency, a missing kernel) */
	WW_RUN_UNAVAILABLE, /* a library node whose library is missing on this machine */
	WW_RUN_FAULT,       /* device code did something illegal; the runner ends after this reply */
	WW_RUN_OVERRUN,     /* guard bytes beside a buffer were changed */
	WW_RUN_NOMEM,       /* the device has not enough memory for the plan */
	WW_RUN_DIED,        /* set by the judge: the process ended */
	WW_RUN_LATE,        /* set by the judge: no answer before the deadline, killed */
	WW_RUN_BROKEN       /* our own trouble: no device, driver too old */
};

/* What the cuda side says of CUDA_ERROR_ILLEGAL_ADDRESS, before the error's name. */
#define WW_RUN_ILLEGAL_ADDRESS "an access outside every buffer, or a store to an input or parameter"

struct ww_run_head {
	uint32_t magic, op, n_fds, bytes;
};

struct ww_run_reply {
	uint32_t kind;            /* enum ww_run_kind */
	uint32_t made;            /* REPEAT: runs made */
	uint32_t differs;         /* REPEAT: the last of them gave other bits; its outputs lie in the buffers */
	uint32_t contradicted;    /* GO on cuda: another clock says much more than the events do */
	uint64_t digest;          /* REPEAT: of the outputs that the others were compared with */
	double device_us;         /* GO on cuda: what the call took (clocks.h) */
	double stamp_us, call_us; /* GO on cuda: by the stamps, by the host's clock; NAN where there was no flush */
	char text[480];           /* one line, NUL-terminated; "" where nothing is to be said */
};

struct ww_run_facts {
	int32_t abi, reserved;
	struct ww_device device;
	/* Multiplications and additions a second that the device cannot exceed at its highest clock, dense: in fp32 by
	 * plain instructions, and in half precision by matrix units; 0: not known.  By construction, not by measurement: no
	 * load makes them smaller. */
	double plain_limit_flops, matrix_limit_flops;
	char name[64];   /* "NVIDIA H200", "AMD EPYC 9654, 2 threads" */
	char uuid[48];   /* of the GPU, or "cpu" */
	char driver[64]; /* "13000", or the kernel's release */
};

/* Payload of LOAD; descriptors: image, binary.  Behind it the symbol map: pairs of NUL-terminated strings, the plan's
 * name and the binary's, for kernels whose names differ. */
struct ww_run_load {
	uint64_t image_bytes, binary_bytes;
};
/* Payload of BIND; descriptor: the memory (a memfd, or an exported CUDA allocation). */
struct ww_run_bind {
	uint32_t buf; /* handle in the image */
	uint32_t writable;
	uint64_t bytes;        /* of the buffer */
	uint64_t map_bytes;    /* of the memory behind the descriptor */
	uint64_t offset_bytes; /* of the buffer in it */
};
/* Payload of REPEAT (cuda only; on cpu the judge looks at the outputs itself).  The outputs as they lie are the first
 * run's unless `has_first` says that `first` is their digest under `key` already.  Stops at a difference, or with the
 * run in which limit_ms have passed. */
struct ww_run_repeat {
	uint32_t n, limit_ms;
	uint64_t key, first;
	uint32_t has_first, reserved;
};
/* FLUSH: cuda; on cpu the judge does it, after the inputs.  GUARDS: cuda; look at the guard bytes behind the run. */
enum ww_run_prepare { WW_RUN_POISON = 1, WW_RUN_FLUSH = 2, WW_RUN_GUARDS = 4 };
/* The nodes from..to-1 of the plan: all, or those between two that PyTorch runs. */
struct ww_run_part {
	uint32_t from, to;
};
/* Payload of HELLO and PREPARE. */
struct ww_run_flags {
	uint32_t flags, reserved;
};
/* Payload of GO.  cuda: `flags` says what to prepare; a part without nodes is prepared and looked at, too. */
struct ww_run_go {
	uint32_t flags, reserved;
	struct ww_run_part part;
};
/* HELLO: measure the memory bandwidth too; give every buffer an allocation of its own that ends where it ends, and the
 * writable ones one that nobody has written (cuda, for a tool that watches; the outputs cannot be compared then). */
enum { WW_RUN_MEASURE = 1, WW_RUN_EXACT = 2 };

/* What a back end may ask of the program that loaded it: a plug-in links to nothing of ours. */
struct ww_run_host {
	/* Path of the first library of these names (ends with NULL) that this machine has, into out (PATH_MAX bytes); 0
	 * where there is none. */
	int (*find_library)(const char *const *names, char *out);
	/* The reply of the request in progress, from a signal handler: sends it and ends the process. */
	void (*die)(const struct ww_run_reply *r);
};

/* A back end.  Every function returns an enum ww_run_kind and may write one line to r->text; `self` is what open()
 * made. */
struct ww_run_backend {
	int abi; /* WW_RUN_ABI */
	int (*open)(void **self, int device, int threads, const struct ww_run_host *host, struct ww_run_reply *r);
	int (*hello)(void *self, unsigned flags, struct ww_run_facts *facts, struct ww_run_reply *r);
	/* `symbols` as in LOAD, ended by an empty name; image and symbols stay valid until unload(). */
	int (*load)(void *self, const struct ww_image *image, int binary_fd, size_t binary_bytes, const char *symbols,
		struct ww_run_reply *r);
	int (*bind)(void *self, const struct ww_run_bind *b, int fd, struct ww_run_reply *r);
	int (*ready)(void *self, struct ww_run_reply *r);
	int (*prepare)(void *self, unsigned flags, struct ww_run_reply *r);
	int (*go)(void *self, const struct ww_run_part *part, struct ww_run_reply *r);
	int (*guards)(void *self, struct ww_run_reply *r); /* NULL on cpu: the judge looks itself */
	int (*repeat)(void *self, const struct ww_run_repeat *q, struct ww_run_reply *r); /* may be NULL */
	/* After ready().  `out` has room for image->n_nodes rows. */
	int (*profile)(
		void *self, const struct ww_run_profile_ask *ask, struct ww_run_profile *out, struct ww_run_reply *r);
	void (*unload)(void *self);
	void (*close)(void *self);
};

/* What the bytes beside a buffer hold, between its end and the end of its pages. */
enum { WW_RUN_GUARD_BYTE = 0xc5 };
/* What every byte of outputs, scratch and cpu shared memory holds before a call; `call` counts up.  All ones are NaN,
 * but also true and -1, no obstacle to fmaxf(), and the largest unsigned number.  So other calls find a large number of
 * either sign there, or zero: nothing that nobody has written is right in all of them. */
static inline unsigned char ww_run_poison(unsigned call)
{
	static const unsigned char bytes[] = { 0xff, 0x7f, 0x00, 0xfe };
	return bytes[call % sizeof(bytes)];
}

/* From here on ww_run_send() ends with WW_ERR_TIMEOUT where the other end reads nothing for so long: a runner that has
 * been taken over may answer requests that it leaves in the socket. */
enum ww_rc ww_run_send_limit(int sock, int ms, struct ww_err *err) WW_MUST_CHECK;
/* One frame out or in.  fds may be NULL where n_fds is 0; ww_run_recv() sets *n_fds to the number received and refuses
 * more than max_fds or a payload beyond max_bytes.  deadline_ns as in ww_fd_read(). */
enum ww_rc ww_run_send(int sock, uint32_t op, const void *payload, size_t bytes, const int *fds, int n_fds,
	struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_run_recv(int sock, struct ww_run_head *head, void *payload, size_t max_bytes, int *fds, int max_fds,
	unsigned long long deadline_ns, struct ww_err *err) WW_MUST_CHECK;

/* The entry of the process: `warpwright __runner TARGET DEVICE THREADS`. */
int ww_runner_main(int argc, char **argv);
/* A plug-in exports this symbol: `const struct ww_run_backend *ww_run_plugin(void)`. */
#define WW_RUN_PLUGIN_SYMBOL "ww_run_plugin"
#define WW_RUN_PLUGIN_CUDA "libwarpwright-judge-cuda.so"
const struct ww_run_backend *ww_run_cpu_backend(void);
