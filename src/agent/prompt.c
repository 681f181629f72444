/* prompt.c - what a policy is told before it begins.
 *
 * Short on purpose: whatever a tool says when it is asked is not repeated here.  The text depends on the options
 * only, so that two runs with the same options start with the same bytes.
 */
#include "agent/prompt.h"
#include "base/target.h"

#include "agent/compact.h"
#include "agent/tools.h"
#include "judge/solution.h"

#include <string.h>

static const char intro[] =
	"You write fast kernels. The user shows a PyTorch module; replace its forward pass by a solution that "
	"computes the same outputs in less time.\n\n";

static const struct {
	enum ww_baseline which;
	const char *name;
} baselines[] = { { WW_BASE_EAGER, "eager PyTorch" }, { WW_BASE_COMPILE, "torch.compile" },
	{ WW_BASE_AUTOTUNE, "torch.compile (max-autotune)" } };

/* What there is to earn depends on what is measured: reward 3 needs eager and compile, reward 2 eager. */
static void add_goal(struct ww_str *s, unsigned measured, enum ww_form form)
{
	const int eager = measured >> WW_BASE_EAGER & 1, compile = measured >> WW_BASE_COMPILE & 1;
	const char *before = ", and more than 5% faster than ";
	ww_str_adds(s, "GOAL. Correct by the rule below");
	for (size_t i = 0; i < WW_ARRAY_LEN(baselines); i++)
		if (measured >> baselines[i].which & 1) {
			ww_str_addf(s, "%s%s", before, baselines[i].name);
			before = " and ";
		}
	ww_str_adds(s, ", by the time that the work takes on the device. Reward: -1 not correct; 1 correct");
	if (eager)
		ww_str_adds(s, "; 2 more than 5% faster than eager");
	if (eager && compile)
		ww_str_adds(s, "; 3 more than 5% faster than eager and torch.compile. ");
	else
		ww_str_addf(s, ". %d is the most here: %s is no baseline of this run. ", eager ? 2 : 1,
			eager ? "torch.compile" : "eager PyTorch");
	ww_str_adds(s,
		form == WW_FORM_PLAN ? "A plan of library nodes alone earns at most 1.\n\n"
							 : "What PyTorch's own operators compute in your place earns at most 1.\n\n");
}

static const char rule_strict[] =
	"RULE strict. Several secret draws of inputs and parameters (also scaled by 1/64 and 64 and shifted by 3); "
	"parameters are never at their defaults. The reference is the module in fp64. Your norm-wise relative error "
	"may be four times PyTorch's own (1e-5 where that is larger), each element sixteen times PyTorch's largest "
	"error; no NaN or Inf where the reference is finite. TF32 or half precision where the task says float32 will "
	"usually fail.\n\n";

static const char rule_paper[] =
	"RULE paper. Five secret draws; every element within atol = rtol = 1e-2 of PyTorch's output.\n\n";

static const char solution_text[] =
	"SOLUTION. Two files at the top of the workspace: %s (device code) and plan.c; whatever else you keep there is "
	"yours and not judged. plan.c includes <ww/plan.h> and defines void plan(struct "
	"ww_plan *p): it sees shapes, strides, dtypes and device facts, never data, and lists buffers and nodes "
	"(launches, memset, copy, GEMM and convolution by library) in program order on one stream. It is compiled by "
	"a small C compiler and has no libc. Read sizes from the tensors; never write them down. Outputs and scratch "
	"hold poison (NaN among others) before every call, inputs and parameters are read-only, nothing survives from "
	"one call to the next, and every access outside a buffer is a fault. <ww/...> has a cookbook of device functions and plan "
	"recipes.\n\n";

static const char kernelbench_text[] =
	"SOLUTION. One file, %s, that defines class ModelNew(nn.Module): made with the same arguments as Model, with the "
	"same "
	"parameters and buffers under the same names, and a forward() that returns the same outputs. Kernels come by "
	"torch.utils.cpp_extension.load_inline or Triton, compiled at the top level of the file, not in __init__ or "
	"forward(). All "
	"parameters are drawn anew before each call, so nothing that depends on them may be prepared once.\n\n";

static const char cuda_agent_text[] =
	"SOLUTION. model.py holds the task; it is not judged, and changing it changes nothing. %s defines class "
	"ModelNew(nn.Module): "
	"made with the same arguments as Model, with the same parameters and buffers under the same names; it does import "
	"cuda_extension and calls the functions bound there, and no torch operators in forward(). kernels/NAME.cu holds "
	"kernels and "
	"launchers; kernels/NAME_binding.cpp includes \"../binding_registry.h\", wraps a launcher in a function on "
	"torch::Tensor, and "
	"registers it: static void bindings(pybind11::module &m) { m.def(\"name\", &name); } REGISTER_BINDING(NAME, "
	"bindings); Both are "
	"compiled into cuda_extension by themselves (tool compile: there is no utils/ here). All parameters are drawn "
	"anew before each "
	"call, so nothing that depends on them may be prepared once.\n\n";

static const char answer_text[] =
	"ANSWER with the whole files, each in a fenced block of code whose first line is a comment with its name (# for "
	"Python, // for "
	"others), as // %s. ";
static const char single_text[] = "There is one answer: it is judged, and that judgement is your reward.\n\n";
static const char refine_text[] =
	"Each answer is compiled, checked and timed, and you are told what came out; then answer with the whole files "
	"again. The last "
	"answer is judged once more from scratch, and that judgement is your reward. There are %d answers.\n\n";

static const char workflow[] = "WORKFLOW. inspect the graph and the device; profile the reference to see where its "
							   "time goes; write both files; compile "
							   "until it builds; verify until it is correct; profile your solution to see what limits "
							   "it; change one thing, verify, and keep "
							   "what is faster. Submit with the best solution in the workspace: it is judged once more "
							   "from scratch, and that judgement is your "
							   "reward. A message without a tool call ends the episode as well; so does the fifth call "
							   "in a row that is not valid, and a "
							   "budget that is used up.\n\n";

static void add_budget(struct ww_str *s, const struct ww_agent_opts *o)
{
	const struct ww_budget_limits none = { 0 }, *l = o->budget ? ww_budget_limits(o->budget) : &none;
	ww_str_addf(s, "\nBUDGET. %d turns, %.0f seconds", o->max_turns, o->max_seconds);
	if (o->context_tokens)
		ww_str_addf(s, ", a context of %lld tokens%s", (long long)o->context_tokens,
			o->no_compaction ? "" : " (old outputs of tools are removed when it fills up)");
	if (l->usd > 0)
		ww_str_addf(s, ", %g USD", l->usd);
	if (l->tokens > 0)
		ww_str_addf(s, ", %lld tokens in all", (long long)l->tokens);
	if (l->gpu_s > 0)
		ww_str_addf(s, ", %g seconds on the device", l->gpu_s);
	ww_str_adds(s, ".\n");
}

static void add_solution(struct ww_str *s, const struct ww_agent_opts *o)
{
	static const char *const texts[] = {
		[WW_FORM_PLAN] = solution_text, [WW_FORM_KERNELBENCH] = kernelbench_text, [WW_FORM_CUDA_AGENT] = cuda_agent_text
	};
	const char *name = ww_solution_needs(o->form, o->target, 0);
	ww_str_addf(s, texts[o->form], name);
	if (o->loop == WW_LOOP_AGENT)
		return;
	ww_str_addf(s, answer_text, name);
	if (o->loop == WW_LOOP_SINGLE)
		ww_str_adds(s, single_text);
	else
		ww_str_addf(s, refine_text, o->max_turns);
}

const char *ww_prompt_name(enum ww_prompt p)
{
	static const char *const names[] = { [WW_PROMPT_FULL] = "full", [WW_PROMPT_COMPACT] = "compact" };
	return names[p];
}

enum ww_prompt ww_prompt_of(const char *name)
{
	return strcmp(name, ww_prompt_name(WW_PROMPT_COMPACT)) ? WW_PROMPT_FULL : WW_PROMPT_COMPACT;
}

static char *full_system(const struct ww_agent_opts *o)
{
	struct ww_str s = WW_STR_INIT(2 << 20);
	size_t n;
	const struct ww_tool_spec *specs = ww_tools_specs(&n);
	ww_str_adds(&s, intro);
	add_goal(&s, o->baselines, o->form);
	ww_str_adds(&s, o->rule == WW_RULE_PAPER ? rule_paper : rule_strict);
	add_solution(&s, o);
	if (o->loop == WW_LOOP_AGENT) {
		ww_str_adds(&s, workflow);
		ww_str_adds(&s, "TOOLS.\n");
		for (size_t i = 0; i < n; i++)
			ww_str_addf(&s, "- %s: %s\n", specs[i].name, specs[i].description);
	}
	add_budget(&s, o);
	if (o->skill)
		ww_str_addf(&s,
			"\nSKILL. What follows is the skill \"%s\". Its other files are read with the tool read: a path in it like "
			"references/plan.md is skill/references/plan.md there, and in the shell. Read what you need before you "
			"write.\n\n%s",
			o->skill->name, o->skill->body.p);
	return ww_str_take(&s);
}

json_t *ww_prompt_limits(const struct ww_agent_opts *o)
{
	const struct ww_budget_limits none = { 0 }, *l = o->budget ? ww_budget_limits(o->budget) : &none;
	json_t *j = json_pack("{s:i, s:f, s:I, s:b}", "turns", o->max_turns, "seconds", o->max_seconds, "context_tokens",
		(json_int_t)o->context_tokens, "compaction", !o->no_compaction);
	if (l->usd > 0)
		json_object_set_new(j, "usd", json_real(l->usd));
	if (l->tokens > 0)
		json_object_set_new(j, "tokens", json_integer(l->tokens));
	if (l->gpu_s > 0)
		json_object_set_new(j, "gpu_seconds", json_real(l->gpu_s));
	return j;
}

static char *full_task(const struct ww_agent_opts *o)
{
	struct ww_str s = WW_STR_INIT((8 << 20) + strlen(o->task_source));
	ww_str_addf(&s, "Target: %s (%s). The task:\n\n```python\n", ww_target_name(o->target), o->judge.device_name);
	ww_str_adds(&s, o->task_source);
	ww_str_adds(&s, "\n```\n");
	return ww_str_take(&s);
}

char *ww_prompt_system(const struct ww_agent_opts *o)
{
	struct ww_compact c = { o->target, o->loop, o->rule, o->baselines, o->max_turns };
	return o->prompt == WW_PROMPT_COMPACT ? ww_compact_system(&c) : full_system(o);
}

char *ww_prompt_task(const struct ww_agent_opts *o)
{
	if (o->prompt != WW_PROMPT_COMPACT)
		return full_task(o);
	json_auto_t *inspect = ww_tool_inspect_data(o->target, o->judge.device, o->judge.graph);
	return inspect ? ww_compact_task(inspect) : NULL;
}
