/* err.h - one kind of error for infrastructure.
 *
 * A function that can fail for a reason outside its caller's arguments returns enum ww_rc and takes `struct ww_err
 * *err` last (never NULL).  What a candidate solution does wrong is not an error: it is data in struct ww_verdict.
 *
 * The message is one line for the user: what happened, to which file or process, and what to do next.  The innermost
 * function that knows the facts writes it; callers prepend context with ww_err_wrap() only where it adds something.
 */
#pragma once

/* name, exit code of the process that ends with it */
#define WW_RC_MAP(X) \
	X(WW_OK, 0)                    /* ok */ \
	X(WW_ERR_USAGE, 2)             /* bad usage or bad input file */ \
	X(WW_ERR_TASK, 2)              /* the task cannot be used */ \
	X(WW_ERR_ROOM, 2)              /* the device's memory has no room for the task now */ \
	X(WW_ERR_IO, 3)                /* input/output error */ \
	X(WW_ERR_FULL, 3)              /* no space left on the device or in the quota */ \
	X(WW_ERR_NOMEM, 3)             /* out of memory */ \
	X(WW_ERR_LIMIT, 3)             /* a documented limit was exceeded */ \
	X(WW_ERR_TIMEOUT, 3)           /* a time limit was reached */ \
	X(WW_ERR_WORKER, 3)            /* a worker process died */ \
	X(WW_ERR_PROTOCOL, 3)          /* a worker or peer broke the protocol */ \
	X(WW_ERR_MISSING, 3)           /* something that is needed is not installed */ \
	X(WW_ERR_DEVICE, 3)            /* the device failed */ \
	X(WW_ERR_SYSTEM, 3)            /* a system call failed */ \
	X(WW_ERR_INTERRUPTED, 3)       /* interrupted */

enum ww_rc {
#define X(name, code) name,
	WW_RC_MAP(X)
#undef X
		WW_RC_COUNT
};

#define WW_MUST_CHECK __attribute__((warn_unused_result))
#define WW_PRINTF(f, a) __attribute__((format(printf, f, a)))

struct ww_err {
	enum ww_rc rc;
	char msg[1024]; /* one line, no newline */
};
#define WW_ERR_INIT { WW_OK, "" }

/* Set the error and return rc, so that `return ww_err_set(err, WW_ERR_IO, ...)` reads well.  Newlines and control
 * characters in the text are replaced by spaces. */
enum ww_rc ww_err_set(struct ww_err *err, enum ww_rc rc, const char *fmt, ...) WW_PRINTF(3, 4);
/* The same with ": strerror(errno)" at the end; ENOSPC and EDQUOT become WW_ERR_FULL, ENOMEM WW_ERR_NOMEM. */
enum ww_rc ww_err_errno(struct ww_err *err, enum ww_rc rc, const char *fmt, ...) WW_PRINTF(3, 4);
/* Prepend "context: " to the message and return err->rc. */
enum ww_rc ww_err_wrap(struct ww_err *err, const char *fmt, ...) WW_PRINTF(2, 3);

const char *ww_rc_name(enum ww_rc rc); /* "WW_ERR_IO" */
int ww_rc_exit(enum ww_rc rc);         /* 0, 2 or 3 */

/* A broken invariant of ours: print where, and abort.  Never for input. */
#define WW_BUG(cond) do { if (cond) ww_bug(__FILE__, __LINE__, #cond); } while (0)
void ww_bug(const char *file, int line, const char *what) __attribute__((noreturn));

/* Where `expr` fails: set rc and go to the label `out`, which releases; or return, with nothing to release. */
#define WW_TRY(expr) do { rc = (expr); if (rc != WW_OK) goto out; } while (0)
#define WW_CHECK(expr) do { enum ww_rc rc_ = (expr); if (rc_ != WW_OK) return rc_; } while (0)
#define WW_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
