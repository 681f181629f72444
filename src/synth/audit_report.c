/* audit_report.c - an audit's findings as text and as JSON (audit.h). */
#include "base/json.h"
#include "synth/audit.h"

#include <string.h>

static void print_row(const struct ww_audit_finding *f, struct ww_str *out)
{
	ww_str_addf(out, "    row %lld", (long long)f->row);
	if (f->id)
		ww_str_addf(out, " (%.80s)", f->id);
	if (f->other) {
		ww_str_addf(out, " is like row %lld", (long long)f->other);
		if (f->other_id)
			ww_str_addf(out, " (%.80s)", f->other_id);
		if (f->other_set)
			ww_str_addf(out, " of %s", f->other_set);
	}
	if (f->text > 0 || f->graph > 0)
		ww_str_addf(out, ": text %.2f, graph %.2f", f->text, f->graph);
	if (f->detail)
		ww_str_addf(out, ": %s", f->detail);
	ww_str_addc(out, '\n');
}

static void print_kind(const struct ww_audit *a, enum ww_audit_kind kind, int rows_of_each, struct ww_str *out)
{
	int64_t shown = 0;
	ww_str_addf(
		out, "\n%s: %lld (%s)\n", ww_audit_kind_name(kind), (long long)a->count[kind], ww_audit_kind_text(kind));
	for (size_t i = 0; i < a->n && shown < rows_of_each; i++)
		if (a->f[i].kind == kind) {
			print_row(&a->f[i], out);
			shown++;
		}
	if (shown < a->count[kind])
		ww_str_addf(out, "    and %lld more (--json lists all)\n", (long long)(a->count[kind] - shown));
}

void ww_audit_text(const struct ww_audit *a, const char *set, int rows_of_each, struct ww_str *out)
{
	ww_str_addf(out, "%s: %lld rows, findings: %zu; %lld rows were run, %.0f s\n", set, (long long)a->rows, a->n,
		(long long)a->ran, a->seconds);
	if (a->no_graph)
		ww_str_addf(out, "%lld rows gave no graph and were compared by their text alone\n", (long long)a->no_graph);
	for (int k = 0; k < WW_AUDIT_COUNT; k++)
		if (a->count[k])
			print_kind(a, (enum ww_audit_kind)k, rows_of_each, out);
}

static void set_text(json_t *o, const char *key, const char *text)
{
	if (text)
		json_object_set_new(o, key, json_string(text));
}

static json_t *finding_json(const struct ww_audit_finding *f)
{
	json_t *o = json_pack("{s:s, s:I}", "kind", ww_audit_kind_name(f->kind), "row", (json_int_t)f->row);
	set_text(o, "id", f->id);
	if (f->other)
		json_object_set_new(o, "other_row", json_integer((json_int_t)f->other));
	set_text(o, "other_id", f->other_id);
	set_text(o, "other_set", f->other_set);
	if (f->text > 0 || f->graph > 0)
		json_object_set_new(o, "similarity", json_pack("{s:f, s:f}", "text", f->text, "graph", f->graph));
	set_text(o, "detail", f->detail);
	return o;
}

json_t *ww_audit_json(const struct ww_audit *a, const char *set)
{
	json_t *counts = json_object(), *findings = json_array();
	for (int k = 0; k < WW_AUDIT_COUNT; k++)
		json_object_set_new(counts, ww_audit_kind_name((enum ww_audit_kind)k), json_integer((json_int_t)a->count[k]));
	for (size_t i = 0; i < a->n; i++)
		json_array_append_new(findings, finding_json(&a->f[i]));
	return json_pack("{s:s, s:I, s:I, s:I, s:f, s:o, s:o}", "set", set, "rows", (json_int_t)a->rows, "ran",
		(json_int_t)a->ran, "no_graph", (json_int_t)a->no_graph, "seconds", a->seconds, "counts", counts, "findings",
		findings);
}
