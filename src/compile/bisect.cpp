#include "ahead/bisect.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/linspace.h>
#include <torch/csrc/api/include/torch/serialize/archive.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <cmath>
#include <cstdio>
#include <limits>
#include <mutex>

#include "base/files.h"
#include "native/backend.h"
#include "native/build/cache_folder.h"
#include "native/print/prelude.h"
#include "tensors/autograd_graph.h"
#include "tensors/unit_in_last_place.h"

namespace ahead {
namespace {

/// Enough for a function that does the same twice in a row at some time.
constexpr uint64_t most_calls = 8;

/// What a kernel may be off: so many units in the last place of the largest number, and so much
/// more than what ATen's own result is off, which tells how much rounding matters in this group.
constexpr double units_of_wide = 256, units_of_narrow = 8, times_atens_error = 16;

/// The largest difference of finite numbers; infinity if one of two numbers is finite only, or they
/// are different infinities.
double largest_difference(const at::Tensor& one, const at::Tensor& other) {
  if (one.numel() == 0) return 0;
  const at::Tensor a = one.to(at::kDouble), b = other.to(at::kDouble);
  const at::Tensor are_finite = a.isfinite() & b.isfinite();
  const at::Tensor are_same = (a == b) | (a.isnan() & b.isnan()) | are_finite;
  if (!are_same.all().item<bool>()) return std::numeric_limits<double>::infinity();
  return (a - b).abs().masked_fill(~are_finite, 0).max().item<double>();
}

double largest_number(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return 0;
  return tensor.to(at::kDouble).abs().nan_to_num(0, 0, 0).max().item<double>();
}

/// The coarsest of the floating-point types that a group computes in. What it gives in another one
/// may be made of that.
at::ScalarType coarsest_type(const Graph& graph) {
  at::ScalarType coarsest = at::kDouble;
  const auto look_at = [&](const TensorMeta& meta) {
    if (at::isFloatingType(meta.dtype) &&
        unit_in_last_place(meta.dtype) > unit_in_last_place(coarsest))
      coarsest = meta.dtype;
  };
  for (const Graph::Input& input : graph.inputs()) look_at(input.value->meta);
  for (const Node& node : graph.nodes()) {
    for (const Value* result : node.results()) {
      if (result != nullptr) look_at(result->meta);
    }
  }
  return coarsest;
}

/// How far a kernel's result may be from ATen's, of a group that computes in `dtype` or better.
double tolerance_for(const at::Tensor& by_aten, const at::Tensor* otherwise, at::ScalarType dtype) {
  if (!at::isFloatingType(by_aten.scalar_type())) return 0;
  const double unit = unit_in_last_place(dtype);
  const bool is_narrow = dtype == at::kHalf || dtype == at::kBFloat16;
  double tolerance =
      (is_narrow ? units_of_narrow : units_of_wide) * unit * largest_number(by_aten) +
      std::numeric_limits<float>::min();
  if (otherwise == nullptr) return tolerance;
  // A run in lower precision is off by as many units, of its own.
  const double units = unit / std::max(unit, unit_in_last_place(otherwise->scalar_type()));
  const double error = largest_difference(by_aten, *otherwise);
  if (std::isfinite(error)) tolerance += times_atens_error * units * error;
  return tolerance;
}

void save_tensors_of(const std::vector<at::Tensor>& tensors, const std::string& path) {
  torch::serialize::OutputArchive archive;
  for (size_t i = 0; i < tensors.size(); ++i) archive.write(std::to_string(i), tensors[i].detach());
  archive.save_to(path);
}

/// The leaves that gradients of these tensors reach.
std::vector<at::Tensor> leaves_behind(const std::vector<at::Tensor>& results) {
  torch::autograd::edge_list roots;
  for (const at::Tensor& result : results)
    roots.push_back(torch::autograd::impl::gradient_edge(result));
  std::vector<at::Tensor> leaves;
  tracing::for_each_node(roots, [&](torch::autograd::Node& node) {
    if (const auto* end = dynamic_cast<const torch::autograd::AccumulateGrad*>(&node))
      leaves.push_back(end->variable);
  });
  return leaves;
}

}  // namespace

struct detail::Bisection::State final : native::GroupObserver {
  explicit State(std::function<void(std::string&)> change_text)
      : change_text_(std::move(change_text)) {}

  void change(std::string& text) override {
    if (change_text_) change_text_(text);
  }

  void look_at(const native::RunBothWays& run) override {
    const at::ScalarType coarsest = coarsest_type(*run.group.graph);
    size_t worst = 0;
    double difference = 0, tolerance = 0;
    bool is_beyond = false;
    for (size_t i = 0; i < run.by_aten.size(); ++i) {
      const at::Tensor* const otherwise =
          run.by_aten_otherwise.empty() ? nullptr : &run.by_aten_otherwise[i];
      const double own = largest_difference(run.by_kernel[i], run.by_aten[i]);
      const double tolerated = tolerance_for(run.by_aten[i], otherwise, coarsest);
      if (own <= tolerated || (is_beyond && own - tolerated <= difference - tolerance)) continue;
      is_beyond = true;
      worst = i, difference = own, tolerance = tolerated;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    ++report_.kernels_checked;
    if (!is_beyond || report_.kernels_beyond++ != 0) return;
    report_.kernel = run.group.printed.name;
    report_.graph = run.graph;
    for (const Node& node : run.group.graph->nodes()) report_.operators.push_back(node.op().name());
    report_.result = worst;
    report_.difference = difference;
    report_.tolerance = tolerance;
    write_down(run);
  }

  BisectReport report(const std::string& explanation) {
    std::lock_guard<std::mutex> lock(mutex_);
    BisectReport report = report_;
    if (report.kernels_checked == 0)
      report.reason = "no kernel ran, and ahead::compile says of the call: " + explanation;
    return report;
  }

 private:
  /// Writes what it takes to look at a group alone.
  void write_down(const native::RunBothWays& run) {
    const std::string folder = native::make_temporary_folder();
    const bool is_written =
        !folder.empty() && write_file(folder + "/graph.txt", run.group.graph->str()) &&
        write_file(folder + "/loops.txt", run.group.kernel.str()) &&
        write_file(folder + "/kernel.cpp",
                   native::with_prelude(run.group.printed.text, run.group.printed.lanes)) &&
        write_file(folder + "/report.txt", report_.str() +
                                               "\narguments.pt has the arguments of graph.txt, "
                                               "by_aten.pt what ATen makes of them and "
                                               "by_kernel.pt what kernel.cpp does.\n");
    if (!is_written) return;
    save_tensors_of(run.arguments, folder + "/arguments.pt");
    save_tensors_of(run.by_aten, folder + "/by_aten.pt");
    save_tensors_of(run.by_kernel, folder + "/by_kernel.pt");
    report_.folder = folder;
  }

  const std::function<void(std::string&)> change_text_;
  std::mutex mutex_;
  BisectReport report_;
};

detail::Bisection::Bisection(std::function<void(std::string&)> change)
    : state_(std::make_shared<State>(std::move(change))) {}
detail::Bisection::~Bisection() = default;

Options detail::Bisection::options() const {
  return {.backend = "native", .confirm = Confirm::Never};
}

detail::Compilers detail::Bisection::compilers() const {
  const aot::GraphCompiler compiler = [state = state_](const aot::CompileRequest& request) {
    return native::compile_for(state, request);
  };
  return {.forward = compiler, .backward = compiler, .inference = compiler, .observe = true};
}

bool detail::Bisection::goes_on(const CompileStats& stats) const {
  return stats.cache_hits == 0 && stats.eager_calls == 0 && stats.calls < most_calls;
}

void detail::Bisection::differentiate(const std::vector<at::Tensor>& results) const {
  std::vector<at::Tensor> roots, gradients;
  for (const at::Tensor& result : results) {
    if (!result.defined() || !result.requires_grad()) continue;
    roots.push_back(result);
    // Not all the same, and no random numbers, which belong to the user's program.
    const at::Tensor numbers =
        at::linspace(0.5, 1.5, result.numel(), result.options().requires_grad(false));
    gradients.push_back(numbers.view(result.sizes()));
  }
  const std::vector<at::Tensor> leaves = leaves_behind(roots);
  if (leaves.empty()) return;
  torch::autograd::grad(roots, leaves, gradients, /*retain_graph=*/false, /*create_graph=*/false,
                        /*allow_unused=*/true);
}

BisectReport detail::Bisection::report(const std::string& explanation) const {
  return state_->report(explanation);
}

std::string BisectReport::str() const {
  if (!reason.empty()) return reason;
  const std::string checked = std::to_string(kernels_checked) + " runs of kernels were compared";
  if (!found()) return checked + " with ATen; all are within their tolerance";
  char numbers[160];
  std::snprintf(numbers, sizeof numbers, "result %zu is off by %.3g, of which %.3g are tolerated",
                result, difference, tolerance);
  std::string names;
  for (const std::string& name : operators) names += (names.empty() ? "" : ", ") + name;
  return checked + ", " + std::to_string(kernels_beyond) +
         " are beyond their tolerance. The first is " + kernel + " in " + graph +
         ", which computes " + names + ": " + numbers +
         (folder.empty() ? "." : ". Its graph, source and arguments are in " + folder + ".");
}

}  // namespace ahead
