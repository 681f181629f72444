#include "export/embed.h"
#include "base/err.h"

#include <string.h>

/* WW_EMBED_MAP(X) is X(symbol, "path") for each file, made by module.cmake; WW_SOURCE_TREE is the root of the paths. */
#include "export_embedded.h"

#define X(symbol, path)                                                                                                \
	__asm__(".section .rodata\n"                                                                                   \
		".balign 16\n"                                                                                         \
		"ww_embed_" #symbol ":\n"                                                                              \
		".incbin \"" WW_SOURCE_TREE "/" path "\"\n"                                                            \
		"ww_embed_" #symbol "_end:\n"                                                                          \
		".byte 0\n"                                                                                            \
		".previous\n");                                                                                        \
	extern const char ww_embed_##symbol[], ww_embed_##symbol##_end[];
WW_EMBED_MAP(X)
#undef X

const struct ww_embedded *ww_embedded_find(const char *path)
{
	static struct ww_embedded found[64];
	size_t i = 0;
#define X(symbol, file)                                                                                                \
	WW_BUG(i >= WW_ARRAY_LEN(found));                                                                              \
	if (!strcmp(path, file)) {                                                                                     \
		found[i] = (struct ww_embedded){ file, ww_embed_##symbol,                                              \
						 (size_t)(ww_embed_##symbol##_end - ww_embed_##symbol) };              \
		return &found[i];                                                                                      \
	}                                                                                                              \
	i++;
	WW_EMBED_MAP(X)
#undef X
	return NULL;
}
