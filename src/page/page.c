/* page.c - the parts of a page.  The style has two sets of colours (prefers-color-scheme) and one break at 600 pixels,
 * below which tables shrink and the text of plots, which scales with the picture, grows. */
#include "page/page.h"

#include <string.h>

enum { TEXT_MAX_BYTES = 256 << 10, FACT_MAX_BYTES = 4096 };

static const char style[] =
	":root{color-scheme:light dark;--ink:#1b1f24;--paper:#fff;--faint:#59636e;--rule:#d8dde3;--code:#f4f6f8;--good:#10652f;"
	"--bad:#b00020;--warn:#8a4b00;--s0:#1d5fbf;--s1:#b0420f;--s2:#1b7f4b;--s3:#8b3fa8;--s4:#a3195b;--s5:#5c6b00}\n"
	"@media(prefers-color-scheme:dark){:root{--ink:#e6e8eb;--paper:#14171b;--faint:#9aa3ad;--rule:#353c44;--code:#1e2329;"
	"--good:#5fd08a;--bad:#ff8a95;--warn:#f0b050;--s0:#6aa5ff;--s1:#ff9466;--s2:#5fd08a;--s3:#d29bea;--s4:#ff86b7;--s5:#c9d64a}}\n"
	"*{box-sizing:border-box}body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);"
	"max-width:920px;margin:2em auto;padding:0 1em;overflow-wrap:break-word}\n"
	"h1{font-size:1.4em;line-height:1.25}h2{font-size:1.1em;margin:2em 0 .4em;border-top:1px solid var(--rule);padding-top:.8em}"
	"h3{font-size:1em;margin:1.2em 0 .3em}p{margin:.4em 0}\n"
	"pre{background:var(--code);padding:.6em .8em;overflow:auto;margin:.3em 0;font-size:13px;white-space:pre-wrap}"
	"pre.code{white-space:pre;tab-size:4;counter-reset:n;padding-left:0;overflow-wrap:normal;max-height:40em}"
	"pre.code span::before{counter-increment:n;content:counter(n);display:inline-block;width:6ch;padding-right:2ch;"
	"text-align:right;color:var(--faint)}\n"
	"h1,li,summary,.op,.facts td{overflow-wrap:anywhere}table{border-collapse:collapse}th,td{text-align:left;padding:.15em 1.2em .15em 0;vertical-align:top;font-weight:normal}"
	"th{color:var(--faint)}.facts th{white-space:nowrap}.num td,.num th+th{text-align:right}.num{width:100%}"
	".num tr{border-bottom:1px solid var(--rule)}.num th,.num td{padding:.3em 0 .3em .8em}.num th:first-child{padding-left:0}"
	".num td{white-space:nowrap}.wide{overflow-x:auto}.wide th:first-child{position:sticky;left:0;background:var(--paper)}.wide td small{white-space:nowrap}.name{min-width:6.5em}.interval{stroke-width:1;opacity:.6}.num small{display:block;white-space:normal;color:var(--faint)}.ours *{font-weight:600}.ours small{font-weight:normal}\n"
	".faint,.reasoning{color:var(--faint)}.faint{font-weight:normal}.reasoning{font-style:italic}.text{white-space:pre-wrap}"
	".good{color:var(--good)}.bad{color:var(--bad)}.flags li{color:var(--warn)}ul{margin:.4em 0;padding-left:1.2em}"
	".launch{border-left:4px solid var(--rule);padding:.1em 0 .1em .8em;margin:.6em 0}.launch h3{margin:.1em 0;font-size:.95em}"
	".op{font:13px/1.5 ui-monospace,monospace;padding-left:1.5em;text-indent:-1.5em}\n"
	"summary{cursor:pointer}details{margin:.3em 0}\n"
	"svg{width:100%;height:auto;display:block;overflow:visible}svg text{font-size:10px;fill:var(--faint)}.grid{stroke:var(--rule);stroke-width:.6}"
	".band{fill:var(--s0);opacity:.18}.line{fill:none;stroke-width:1.4}.level{stroke-width:1.2}.mark{stroke-width:1.4}"
	".skip{stroke:var(--warn);stroke-dasharray:3 3}.ring{fill:none;stroke-width:1.8}.miss{stroke:var(--bad);fill:none}\n"
	".legend{color:var(--faint);font-size:.9em}.legend span{display:inline-block;margin-right:1.2em}"
	".legend svg{display:inline-block;width:26px;height:14px;vertical-align:middle;margin-right:.4em}\n"
	"@media(max-width:600px){body{margin:1em auto;font-size:14px}svg text{font-size:19px}.line{stroke-width:2.4}.level{stroke-width:2}.mark{stroke-width:2.4}svg:not(.legend svg) circle{r:5px}"
	".num{font-size:13px}.num small{font-size:11px}.facts td,.facts th{padding-right:.8em}.num th,.num td{padding-left:.5em}pre{font-size:12px}}\n";

void ww_page_text(struct ww_str *h, const char *text, size_t max_bytes)
{
	ww_auto_str clean = WW_STR_INIT(max_bytes + 128);
	ww_str_add_bounded(&clean, text, strlen(text), max_bytes);
	for (const char *p = clean.p; *p; p++)
		switch (*p) {
		case '<': ww_str_adds(h, "&lt;"); break;
		case '>': ww_str_adds(h, "&gt;"); break;
		case '&': ww_str_adds(h, "&amp;"); break;
		case '"': ww_str_adds(h, "&quot;"); break;
		case '\'': ww_str_adds(h, "&#39;"); break;
		default: ww_str_addc(h, *p);
		}
}

static void textv(struct ww_str *h, const char *fmt, va_list ap)
{
	ww_auto_str text = WW_STR_INIT(FACT_MAX_BYTES);
	ww_str_vaddf(&text, fmt, ap);
	ww_page_text(h, text.p, FACT_MAX_BYTES);
}

void ww_page_textf(struct ww_str *h, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	textv(h, fmt, ap);
	va_end(ap);
}

void ww_page_begin(struct ww_str *h, const char *title)
{
	ww_str_adds(h,
		"<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
		"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
		"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n<title>");
	ww_page_text(h, title, 200);
	ww_str_addf(h, "</title>\n<style>\n%s</style></head><body>\n<h1>", style);
	ww_page_text(h, title, 200);
	ww_str_adds(h, "</h1>\n");
}

void ww_page_end(struct ww_str *h) { ww_str_adds(h, "</body></html>\n"); }

void ww_page_facts_begin(struct ww_str *h) { ww_str_adds(h, "<table class=\"facts\">\n"); }

void ww_page_fact(struct ww_str *h, const char *name, const char *fmt, ...)
{
	ww_auto_str value = WW_STR_INIT(FACT_MAX_BYTES);
	va_list ap;
	va_start(ap, fmt);
	textv(&value, fmt, ap);
	va_end(ap);
	if (value.len) {
		ww_str_adds(h, "<tr><th>");
		ww_page_text(h, name, 100);
		ww_str_addf(h, "</th><td>%s</td></tr>\n", value.p);
	}
}

void ww_page_facts_end(struct ww_str *h) { ww_str_adds(h, "</table>\n"); }

static void fold_begin(struct ww_str *h, const char *title, int open)
{
	ww_str_addf(h, "<details%s><summary>", open ? " open" : "");
	ww_page_text(h, title, 400);
	ww_str_adds(h, "</summary>");
}

void ww_page_fold(struct ww_str *h, const char *title, const char *text, int open)
{
	fold_begin(h, title, open);
	ww_str_adds(h, "<pre>");
	ww_page_text(h, text, TEXT_MAX_BYTES);
	ww_str_adds(h, "</pre></details>\n");
}

void ww_page_code(struct ww_str *h, const char *title, const char *text, int open)
{
	ww_auto_str escaped = WW_STR_INIT(8 * TEXT_MAX_BYTES);
	ww_page_text(&escaped, text, TEXT_MAX_BYTES);
	fold_begin(h, title, open);
	ww_str_adds(h, "<pre class=\"code\">");
	for (const char *p = escaped.p; *p;) {
		size_t n = strcspn(p, "\n");
		ww_str_addf(h, "<span>%.*s</span>\n", (int)n, p);
		p += n + (p[n] == '\n');
	}
	ww_str_adds(h, "</pre></details>\n");
}
