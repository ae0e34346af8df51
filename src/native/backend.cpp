#include "native/backend.h"

#include <unordered_map>

#include "ahead/interpret.h"
#include "native/build/kernel_library.h"
#include "native/explain.h"
#include "native/fuse/fuse.h"
#include "native/groups.h"
#include "native/launch/by_sizes.h"
#include "native/launch/kernel_call.h"
#include "native/products/choose_products.h"
#include "native/products/merge_products.h"
#include "native/switches.h"

namespace ahead::native {
namespace {

using Kernels = std::unordered_map<const Graph*, std::shared_ptr<const KernelCall>>;

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

/// The kernels of all sub-graphs of a graph, by sub-graph.
Kernels kernels_of(Groups found, const aot::CompileRequest& request, const Switches& switches) {
  std::vector<KernelSource> sources;
  for (const Group& group : found.groups)
    sources.push_back({group.printed.name, group.printed.text});
  std::vector<KernelOrigin> origins;
  const std::vector<KernelAddress> addresses = build_kernels(sources, &origins);
  if (request.kernel_counts) count(origins, found.failed, *request.kernel_counts);
  if (switches.logs_kernels) log_kernels(request.name, found, origins);
  Kernels kernels;
  for (size_t i = 0; i < addresses.size(); ++i) {
    if (addresses[i] == nullptr) continue;
    auto& [graph, kernel, printed] = found.groups[i];
    kernels.emplace(graph.get(), std::make_shared<const KernelCall>(
                                     *graph, std::move(kernel), std::move(printed), addresses[i]));
  }
  return kernels;
}

std::string describe(const FusedGraph& fused) {
  std::string text;
  for (const std::string& decision : fused.decisions) text += "# " + decision + "\n";
  return text + fused.graph.str();
}

}  // namespace

aot::Executable compile(const aot::CompileRequest& request) {
  if (request.graph.find_input({Slot::Kind::Sizes, 0}) >= 0) {
    return by_sizes(request.graph,
                    [name = request.name, counts = request.kernel_counts](const Graph& graph) {
                      aot::CompileRequest fixed{graph, {}};
                      fixed.name = name;
                      fixed.kernel_counts = counts;
                      return compile(fixed);
                    });
  }
  Graph graph(request.graph);
  merge_products(graph);
  const Switches switches = read_switches();
  FusedGraph fused = fuse(graph, switches);
  choose_products(fused.graph, fastest_multiplier());
  if (request.report) request.report("fused", describe(fused));
  if (switches.logs_fusion) log_lines("fusion", request.name, fused.decisions);
  Groups found = find_groups(fused.graph, switches.fuse_limit);
  report_kernels(found.groups, request);
  if (switches.logs_memory)
    log_lines("memory", request.name, explain_memory(graph, fused.graph, found.groups));
  const Kernels kernels = kernels_of(std::move(found), request, switches);
  const aot::GraphCompiler call_kernel = [&](const aot::CompileRequest& group) -> aot::Executable {
    const auto found = kernels.find(&group.graph);
    if (found != kernels.end()) {
      return [kernel = found->second](std::vector<at::Tensor>&& args) {
        return (*kernel)(std::move(args));
      };
    }
    auto interpreter = std::make_shared<const Interpreter>(group.graph);
    return
        [interpreter](std::vector<at::Tensor>&& args) { return (*interpreter)(std::move(args)); };
  };
  auto interpreter = std::make_shared<const Interpreter>(fused.graph, call_kernel);
  return {[interpreter](std::vector<at::Tensor>&& args) { return (*interpreter)(std::move(args)); },
          [interpreter](std::vector<at::Tensor>&& args) {
            return interpreter->begin(std::move(args));
          }};
}

BackendTraits traits() {
  BackendTraits traits{.takes_sizes = true};
  // Forwards that read a row and write one, or a number for it.
  for (const char* name : {"aten.native_layer_norm", "aten._softmax", "aten._log_softmax",
                           "aten.logsumexp", "aten.var.correction", "aten.var_mean.correction",
                           "aten.amax", "aten.amin", "aten.sum.dim_IntList", "aten.mean.dim"})
    traits.fused_operators.emplace_back(name);
  return traits;
}

}  // namespace ahead::native
