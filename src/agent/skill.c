/* skill.c - see skill.h.
 *
 * The front matter is the part of YAML that skills use: "key: value" lines, a value in quotes, or one that goes on in
 * indented lines (plain, or after ">" and "|").  Files are opened component by component and links are never followed,
 * since the path comes from a model.
 */
#include "agent/skill.h"

#include "base/fs.h"
#include "base/hash.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MAX_BYTES = 1 << 20, DESCRIPTION_MAX = 1024, DEPTH_MAX = 8 };

/* ---- Files ------------------------------------------------------------------------------------------------------- */

static enum ww_rc read_fd(int fd, const char *path, struct ww_str *out, struct ww_err *err)
{
	char chunk[16384];
	for (ssize_t n; (n = read(fd, chunk, sizeof(chunk))) != 0;) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return ww_err_errno(err, WW_ERR_IO, "cannot read skill file %s", path);
		ww_str_add(out, chunk, (size_t)n);
	}
	return WW_OK;
}

/* Takes fd. */
static enum ww_rc list_fd(int fd, const char *path, struct ww_str *out, struct ww_err *err)
{
	struct dirent **names;
	char self[64];
	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	int n = scandir(self, &names, NULL, alphasort);
	close(fd);
	if (n < 0)
		return ww_err_errno(err, WW_ERR_IO, "cannot read skill folder %s", path);
	for (int i = 0; i < n; i++) {
		if (names[i]->d_name[0] != '.')
			ww_str_addf(out, "%s%s\n", names[i]->d_name, names[i]->d_type == DT_DIR ? "/" : "");
		free(names[i]);
	}
	free(names);
	return WW_OK;
}

/* A descriptor of what `path` names below the folder, or -1. */
static int open_below(int dirfd, const char *path)
{
	char part[NAME_MAX + 1];
	int at = dup(dirfd);
	for (int depth = 0; at >= 0 && *path; depth++) {
		size_t n = strcspn(path, "/");
		if (depth == DEPTH_MAX || n > NAME_MAX || !n || path[0] == '.') /* hidden names, "." and ".." are none of its */
			goto none;
		memcpy(part, path, n);
		part[n] = 0;
		path += n + (path[n] == '/');
		int next = openat(at, part, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | (*path ? O_DIRECTORY : 0));
		close(at);
		at = next;
	}
	return at;
none:
	close(at);
	return -1;
}

enum ww_rc ww_skill_read(const struct ww_skill *s, const char *path, struct ww_str *out, int *found, struct ww_err *err)
{
	struct stat st;
	int fd = open_below(s->dirfd, path);
	*found = fd >= 0 && fstat(fd, &st) == 0 && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode));
	if (*found && S_ISDIR(st.st_mode))
		return list_fd(fd, path, out, err);
	enum ww_rc rc = *found ? read_fd(fd, path, out, err) : WW_OK;
	if (fd >= 0)
		close(fd);
	return rc;
}

/* ---- Front matter ------------------------------------------------------------------------------------------------ */

struct front {
	struct ww_str name, description;
};

static void add_value(struct ww_str *to, const char *p, size_t n)
{
	while (n && strchr(" \t\r", *p))
		p++, n--;
	while (n && strchr(" \t\r", p[n - 1]))
		n--;
	if (!to->len && n >= 2 && (*p == '"' || *p == '\'') && p[n - 1] == *p)
		p++, n -= 2;
	if (!to->len && n <= 2 && n && strchr(">|", *p))
		return; /* the value is in the lines that follow */
	if (to->len && n)
		ww_str_addc(to, ' ');
	ww_str_add(to, p, n);
}

/* The text after the front matter, or NULL where there is none that ends. */
static const char *parse_front(const char *text, struct front *f)
{
	struct ww_str other = WW_STR_INIT(1), *value = NULL;
	const char *p = text, *body = NULL;
	if (strncmp(p, "---\n", 4) && strncmp(p, "---\r\n", 5))
		return NULL;
	for (p = strchr(p, '\n') + 1; *p && !body;) {
		size_t n = strcspn(p, "\n"), key = strcspn(p, ":\n");
		const char *line = p;
		p += n + (p[n] == '\n');
		if (!strncmp(line, "---", 3) && n - strspn(line, "-") <= 1)
			body = p;
		else if (*line == ' ' || *line == '\t') {
			if (value)
				add_value(value, line, n);
		} else if (line[key] == ':') {
			value = key == 4 && !memcmp(line, "name", 4)        ? &f->name
				: key == 11 && !memcmp(line, "description", 11) ? &f->description
																: &other;
			add_value(value, line + key + 1, n - key - 1);
		}
	}
	ww_str_release(&other);
	return body;
}

static int good_name(const char *s)
{
	size_t n = strlen(s);
	return n >= 1 && n <= 64 && strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == n && s[0] != '-' &&
		s[n - 1] != '-' && !strstr(s, "--");
}

static enum ww_rc check_front(const struct front *f, const char *dir, struct ww_err *err)
{
	char real[PATH_MAX];
	const char *folder = realpath(dir, real) ? strrchr(real, '/') : NULL;
	if (!good_name(f->name.p))
		return ww_err_set(err, WW_ERR_USAGE,
			"%s/SKILL.md: \"name\" must be 1 to 64 of a-z, 0-9 and single hyphens, not \"%.80s\"", dir, f->name.p);
	if (!folder || strcmp(folder + 1, f->name.p))
		return ww_err_set(
			err, WW_ERR_USAGE, "%s/SKILL.md: \"name\" is \"%s\", which must be the folder's name", dir, f->name.p);
	if (!f->description.len || f->description.cut)
		return ww_err_set(
			err, WW_ERR_USAGE, "%s/SKILL.md: \"description\" must be 1 to %d characters", dir, DESCRIPTION_MAX);
	return WW_OK;
}

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

enum ww_rc ww_skill_open(struct ww_skill *s, const char *dir, struct ww_err *err)
{
	struct front f;
	ww_auto_str text = WW_STR_INIT(FILE_MAX_BYTES);
	int found = 0;
	enum ww_rc rc = WW_OK;
	*s = (struct ww_skill){ .dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), .pack_fd = -1 };
	ww_str_init(&s->body, FILE_MAX_BYTES);
	ww_str_init(&f.name, 256);
	ww_str_init(&f.description, DESCRIPTION_MAX);
	if (s->dirfd < 0) {
		rc = ww_err_errno(err, WW_ERR_USAGE, "cannot open the skill %s", dir);
		goto out;
	}
	WW_TRY(ww_skill_read(s, "SKILL.md", &text, &found, err));
	const char *body = found && !text.cut ? parse_front(text.p, &f) : NULL;
	if (!found)
		rc = ww_err_set(err, WW_ERR_USAGE, "%s is not a skill: it has no SKILL.md", dir);
	else if (!body)
		rc = ww_err_set(err, WW_ERR_USAGE, "%s/SKILL.md must begin with a front matter between two lines of ---", dir);
	else
		rc = check_front(&f, dir, err);
	WW_TRY(rc);
	WW_TRY(ww_skill_pack(s->dirfd, &s->pack_fd, err));
	snprintf(s->name, sizeof(s->name), "%.64s", f.name.p);
	ww_hash_hex(text.p, text.len, s->id);
	ww_str_adds(&s->body, body);
out:
	ww_str_release(&f.name);
	ww_str_release(&f.description);
	if (rc != WW_OK)
		ww_skill_close(s);
	return rc;
}

enum ww_rc ww_skill_open_builtin(struct ww_skill *s, struct ww_err *err)
{
	char dir[PATH_MAX];
	*s = (struct ww_skill){ .dirfd = -1, .pack_fd = -1 };
	ww_str_init(&s->body, 0);
	enum ww_rc rc = ww_fs_resource("skills/cuda", dir, err);
	return rc == WW_OK ? ww_skill_open(s, dir, err) : rc;
}

void ww_skill_close(struct ww_skill *s)
{
	ww_fd_close(&s->dirfd);
	ww_fd_close(&s->pack_fd);
	ww_str_release(&s->body);
	s->name[0] = 0;
}
