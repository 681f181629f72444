/* fdpass.h - descriptors over a UNIX socket (SCM_RIGHTS), beside the first byte of a message. */
#pragma once

#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

enum { WW_FDPASS_MAX = 128 }; /* in one message */

/* sendmsg(2) with n_fds descriptors, again after EINTR.  SIGPIPE never results. */
ssize_t ww_fdpass_send(int sock, const struct iovec *iov, int n_iov, const int *fds, int n_fds, int flags);
/* recvmsg(2), again after EINTR.  The descriptors that came, close-on-exec, are appended to fds[*got..max-1]; what does
 * not fit is closed, so that a peer cannot fill our table.  -1 and EMFILE where the kernel could not hand over all of
 * them: our table is full, or there are more than WW_FDPASS_MAX. */
ssize_t ww_fdpass_receive(int sock, void *bytes, size_t n, int *fds, int max, int *got, int flags);
