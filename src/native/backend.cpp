#include "native/backend.h"

#include <unordered_map>

#include "ahead/interpret.h"
#include "ir/sizes/size_reads.h"
#include "native/both_ways.h"
#include "native/build/background.h"
#include "native/build/kernel_library.h"
#include "native/early_start.h"
#include "native/explain.h"
#include "native/fuse/fuse.h"
#include "native/fuse/input_writes.h"
#include "native/fuse/slice_operands.h"
#include "native/fuse/split_norms.h"
#include "native/groups.h"
#include "native/launch/by_sizes.h"
#include "native/launch/kernel_call.h"
#include "native/launch/sliced_executable.h"
#include "native/products/choose_products.h"
#include "native/products/merge_products.h"
#include "native/products/small_products.h"
#include "native/slices/slices.h"
#include "native/switches.h"

namespace ahead::native {
namespace {

void count(const std::vector<KernelOrigin>& origins, size_t failed, aot::KernelCounts& counts) {
  counts.failed += failed;
  for (const KernelOrigin origin : origins) {
    ++(origin == KernelOrigin::Nowhere ? counts.failed : counts.kernels);
    counts.compiled += origin == KernelOrigin::Compiler;
    counts.from_cache += origin == KernelOrigin::Cache;
  }
}

void report_kernels(const std::vector<Group>& groups, const aot::CompileRequest& request) {
  if (!request.report) return;
  std::string text;
  for (const Group& group : groups) text += group.kernel.str() + "\n" + group.printed.text + "\n";
  request.report("kernels", std::move(text));
}

void log_kernels(const std::string& name, const Groups& found,
                 const std::vector<KernelOrigin>& origins) {
  std::vector<std::string> lines;
  for (size_t i = 0; i < origins.size(); ++i)
    lines.push_back(explain_kernel(found.groups[i], origins[i]));
  for (const std::string& left : found.left) lines.push_back("left to ATen: " + left);
  log_lines("kernels", name, lines);
}

/// What making kernels takes beside the graph; it may be done when the request is gone.
struct Wishes {
  std::string name;
  std::shared_ptr<aot::KernelCounts> counts;
  Switches switches;
  std::shared_ptr<GroupObserver> observer;
  bool strict = false;  ///< results have eager's bits
};

/// A graph as it will run, before there are kernels.
struct Draft {
  Graph fused;
  Groups groups;
  std::vector<bool> donated;  ///< as in CompileRequest
  /// Sub-graphs of `fused` that run slice by slice, and for each of them what runs a slice.
  std::vector<SlicedCall> calls;
  std::vector<Draft> slices;
};

/// What makes an executable of each sub-graph of a fused graph that has a kernel.
using GroupRuns = std::unordered_map<const Graph*, aot::GraphCompiler>;

aot::GraphCompiler run_of(Group group, std::shared_ptr<const KernelCall> kernel,
                          const Wishes& wishes) {
  if (wishes.observer != nullptr) {
    return [run = both_ways(wishes.name, std::move(group), std::move(kernel), wishes.observer)](
               const aot::CompileRequest&) { return run; };
  }
  return [kernel = std::move(kernel)](const aot::CompileRequest& request) -> aot::Executable {
    return [kernel, donated = request.donated](std::vector<at::Tensor>&& args) {
      return (*kernel)(std::move(args), donated);
    };
  };
}

void add_sources(const Groups& found, std::vector<KernelSource>& sources) {
  for (const Group& group : found.groups)
    sources.push_back({group.printed.name, group.printed.text, group.printed.lanes});
}

GroupRuns build(Groups found, const Wishes& wishes) {
  std::vector<KernelSource> sources;
  add_sources(found, sources);
  std::vector<KernelOrigin> origins;
  const std::vector<KernelAddress> addresses = build_kernels(sources, &origins);
  if (wishes.counts) count(origins, found.failed, *wishes.counts);
  if (wishes.switches.logs_kernels) log_kernels(wishes.name, found, origins);
  GroupRuns runs;
  for (size_t i = 0; i < addresses.size(); ++i) {
    if (addresses[i] == nullptr) continue;
    Group& group = found.groups[i];
    const Graph* const graph = group.graph.get();
    auto kernel = std::make_shared<const KernelCall>(*graph, group.kernel, group.printed,
                                                     addresses[i], group.targets);
    runs.emplace(graph, run_of(std::move(group), std::move(kernel), wishes));
  }
  return runs;
}

aot::Executable run_by(std::shared_ptr<const Interpreter> plan) {
  return
      [plan = std::move(plan)](std::vector<at::Tensor>&& args) { return (*plan)(std::move(args)); };
}

/// A graph whose groups run by kernels, where there are any, and whose slices do.
std::shared_ptr<const Interpreter> with_kernels(const Draft& draft, const Wishes& wishes) {
  const GroupRuns runs = build(draft.groups, wishes);
  const auto run = [&](const aot::CompileRequest& group) -> aot::Executable {
    for (size_t i = 0; i < draft.calls.size(); ++i) {
      if (draft.calls[i].whole.get() == &group.graph)
        return run_sliced(draft.calls[i], run_by(with_kernels(draft.slices[i], wishes)));
    }
    const auto known = runs.find(&group.graph);
    if (known != runs.end()) return known->second(group);
    return run_by(
        std::make_shared<const Interpreter>(group.graph, aot::GraphCompiler(), group.donated));
  };
  return std::make_shared<const Interpreter>(draft.fused, run, draft.donated);
}

std::string describe(const FusedGraph& fused) {
  std::string text;
  for (const std::string& decision : fused.decisions) text += "# " + decision + "\n";
  return text + fused.graph.str();
}

/// Runs begin with the interpreter that `choose` returns then.
template <class Choose>
aot::Executable executable(Choose choose) {
  return {[choose](std::vector<at::Tensor>&& args) { return (*choose())(std::move(args)); },
          [choose](std::vector<at::Tensor>&& args) { return choose()->begin(std::move(args)); }};
}

aot::Executable compile_in_background(const Graph& graph, Draft draft, Wishes wishes) {
  auto start = std::make_shared<EarlyStart>(graph, wishes.counts);
  run_in_background([start, draft = std::move(draft), wishes = std::move(wishes)] {
    start->switch_to(with_kernels(draft, wishes));
  });
  return executable([start] { return start->now(); });
}

/// For so many choices of sizes oneDNN multiplies. It makes code for each, keeps no more than about
/// a thousand pieces of code, and making one takes longer than several products.
constexpr size_t most_choices_with_code = 16;

/// What gives other bits than the graph as it is, in less time.
SlicedGraph rewrite(Graph& graph, Multiplier multiplier) {
  merge_products(graph);
  prepare_small_products(graph);
  split_norms(graph);
  return slice_batches(graph, multiplier);
}

Draft make_draft(const aot::CompileRequest& request, const Wishes& wishes, Multiplier multiplier) {
  Graph graph(request.graph);
  SlicedGraph sliced = wishes.strict ? SlicedGraph{Graph(graph), {}} : rewrite(graph, multiplier);
  write_by_copies(sliced.graph);
  const NodeSet late = wishes.strict ? NodeSet() : slice_operands(sliced.graph);
  FusedGraph fused = fuse(sliced.graph, wishes.switches, wishes.strict, late);
  write_in_place(fused.graph);
  choose_products(fused.graph, multiplier);
  if (request.report) request.report("fused", describe(fused));
  if (wishes.switches.logs_fusion) log_lines("fusion", request.name, fused.decisions);
  Groups found = find_groups(fused.graph, sliced.calls, wishes.switches.fuse_limit, wishes.strict);
  // Who compares kernels with ATen needs the arguments as they were.
  if (wishes.observer == nullptr) find_targets(fused.graph, found.groups);
  report_kernels(found.groups, request);
  if (wishes.switches.logs_memory)
    log_lines("memory", request.name, explain_memory(graph, fused.graph, found.groups));
  if (wishes.observer != nullptr) {
    for (Group& group : found.groups) wishes.observer->change(group.printed.text);
  }
  Draft draft{std::move(fused.graph), std::move(found), request.donated, {}, {}};
  for (const SlicedCall& call : sliced.calls) {
    aot::CompileRequest slice{call.slice, {}};
    slice.name = request.name;
    slice.report = request.report;
    draft.slices.push_back(make_draft(slice, wishes, multiplier));
  }
  draft.calls = std::move(sliced.calls);
  return draft;
}

/// The kernels of a graph and of what runs slice by slice in it.
void add_sources(const Draft& draft, std::vector<KernelSource>& sources) {
  add_sources(draft.groups, sources);
  for (const Draft& slice : draft.slices) add_sources(slice, sources);
}

/// Who looks at the kernels, if anybody does, and whether they give eager's bits.
struct Manner {
  std::shared_ptr<GroupObserver> observer;
  bool strict = false;
};

aot::Executable compile_fixed(const Manner& manner, const aot::CompileRequest& request,
                              Multiplier multiplier) {
  const auto& [observer, strict] = manner;
  const Wishes wishes{request.name, request.kernel_counts, read_switches(), observer, strict};
  Draft draft = make_draft(request, wishes, multiplier);
  if (observer == nullptr && request.in_background)
    return compile_in_background(request.graph, std::move(draft), wishes);
  auto interpreter = with_kernels(draft, wishes);
  return executable([interpreter]() -> const auto& { return interpreter; });
}

aot::Executable compile_in(const Manner& manner, const aot::CompileRequest& request) {
  // Kernels are made for sizes that are known when a run begins.
  if (reads_sizes(request.graph)) {
    return run_by(std::make_shared<const Interpreter>(request.graph, aot::GraphCompiler(),
                                                      request.donated));
  }
  const Multiplier multiplier = manner.strict ? Multiplier::ATen : fastest_multiplier();
  if (request.graph.find_input({Slot::Kind::Sizes, 0}) < 0)
    return compile_fixed(manner, request, multiplier);
  std::vector<bool> donated = request.donated;
  if (!donated.empty())
    donated.erase(donated.begin() + request.graph.find_input({Slot::Kind::Sizes, 0}));
  return by_sizes(request.graph,
                  [manner, donated, multiplier, name = request.name, counts = request.kernel_counts,
                   in_background = request.in_background](const Graph& graph, size_t count) {
                    aot::CompileRequest fixed{graph, {}};
                    fixed.donated = donated;
                    fixed.name = name;
                    fixed.kernel_counts = counts;
                    fixed.in_background = in_background;
                    return compile_fixed(
                        manner, fixed,
                        count < most_choices_with_code ? multiplier : Multiplier::ATen);
                  });
}

}  // namespace

aot::Executable compile(const aot::CompileRequest& request) {
  return compile_in({}, request);
}

aot::Executable compile_strictly(const aot::CompileRequest& request) {
  return compile_in({nullptr, true}, request);
}

aot::Executable compile_for(const std::shared_ptr<GroupObserver>& observer,
                            const aot::CompileRequest& request) {
  return compile_in({observer}, request);
}

void begin(std::function<Graph()> make) {
  Switches switches = read_switches();
  if (switches.any()) return;
  run_in_background([make = std::move(make), switches = std::move(switches)] {
    const Graph graph = make();
    if (graph.find_input({Slot::Kind::Sizes, 0}) >= 0) return;
    std::vector<KernelSource> sources;
    add_sources(make_draft({graph, {}}, {"", nullptr, switches, nullptr}, fastest_multiplier()),
                sources);
    build_kernels(sources);
  });
}

namespace {

/// What channels_last gains with ATen's and oneDNN's kernels and our own, in the time that they
/// take to read or write a byte of an image: oneDNN reorders images that lie row by row, and ATen
/// goes over them number by number to pool and resize them. Copies from one layout to the other
/// jump.
LayoutPreferences layouts() {
  return {.channels_last = {{"aten.convolution", 1, -1},
                            {"aten.convolution_backward", 1, -1},
                            {"aten.max_pool2d_with_indices", 7},
                            {"aten.avg_pool2d", 3},
                            {"aten.avg_pool2d_backward", 3},
                            {"aten._adaptive_avg_pool2d", 1.5},
                            {"aten.upsample_nearest2d", 6},
                            {"aten.upsample_nearest2d.vec", 6},
                            {"aten.upsample_nearest2d_backward", 1},
                            {"aten.upsample_bilinear2d", 6},
                            {"aten.upsample_bilinear2d.vec", 6},
                            {"aten.upsample_bilinear2d_backward", 5}},
          .copy_in = 5,
          .copy_out = 2};
}

}  // namespace

BackendTraits traits() {
  BackendTraits traits{.takes_sizes = true};
  // Forwards that read a row and write one, or a number for it.
  for (const char* name :
       {"aten.native_layer_norm", "aten.native_group_norm", "aten._softmax", "aten._log_softmax",
        "aten.logsumexp", "aten.var.correction", "aten.var_mean.correction", "aten.amax",
        "aten.amin", "aten.sum.dim_IntList", "aten.mean.dim"})
    traits.fused_operators.emplace_back(name);
  // Slice by slice, with what reads them.
  traits.fused_operators.emplace_back("aten.bmm");
  traits.layouts = layouts();
  traits.begin = begin;
  return traits;
}

}  // namespace ahead::native
