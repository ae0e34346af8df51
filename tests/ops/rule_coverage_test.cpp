#include <ATen/core/dispatch/Dispatcher.h>
#include <ahead/trace.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "ops/eager.h"
#include "ops/sample.h"
#include "ops/shape_rules.h"

namespace ahead::samples {
namespace {

/// Adds the operators of the graph that `make` returns; a sample that fails elsewhere adds none.
template <class F>
void collect(std::set<std::string>& names, F make) {
  try {
    const Graph graph = make();
    for (const Node& node : graph.nodes()) names.insert(node.op().name());
  } catch (const std::exception&) {
  }
}

std::set<std::string> recorded_operators() {
  std::set<std::string> names;
  for (const SampleTable::Op& op : sample_table().ops()) {
    for (const Sample& sample : op.samples) {
      collect(names, [&] { return trace(sample.make_function(), sample.make_arguments()); });
      collect(names, [&] {
        const std::vector<bool> mutated = run_eager(sample).mutated;
        return trace_joint(sample.make_function(),
                           make_differentiable_arguments(sample, mutated).arguments);
      });
    }
  }
  return names;
}

bool runs_on_cpu(const std::string& rule) {
  const size_t dot = rule.find('.');
  const std::string overload = dot == std::string::npos ? "" : rule.substr(dot + 1);
  const auto handle =
      c10::Dispatcher::singleton().findSchema({"aten::" + rule.substr(0, dot), overload});
  return handle.has_value() && handle->hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
}

/// Rules without a sample: kernels that no public function reaches on this CPU, and operators still
/// to be sampled. Whoever adds a rule adds a sample, not a line here.
const std::set<std::string>& not_sampled() {
  static const std::set<std::string> rules = {
      "_assert_async",
      "_assert_async.msg",
      "_batch_norm_no_update",
      "_cholesky_solve_helper",
      "_convert_weight_to_int4pack_for_cpu",
      "_convolution",
      "_ctc_loss_backward",
      "_ctc_loss_backward.Tensor",
      "_dirichlet_grad",
      "_embedding_bag",
      "_embedding_bag_backward",
      "_embedding_bag_dense_backward",
      "_embedding_bag_forward_only",
      "_embedding_bag_per_sample_weights_backward",
      "_foreach_addcdiv.Tensor",
      "_foreach_powsum.Scalar",
      "_functional_assert_async.msg",
      "_fused_adagrad.tensor_lr",
      "_fused_adam",
      "_fused_adam.tensor_lr",
      "_fused_adamw",
      "_fused_adamw.tensor_lr",
      "_fused_moving_avg_obs_fq_helper_functional",
      "_fused_rms_norm",
      "_fused_sgd.tensor_lr",
      "_linalg_eigvals",
      "_logcumsumexp",
      "_make_dep_token",
      "_native_batch_norm_legit.no_stats",
      "_native_batch_norm_legit_no_training",
      "_scaled_mm",
      "_slow_conv2d_backward.output_mask",
      "_slow_conv2d_forward",
      "_unsafe_masked_index",
      "_unsafe_masked_index_put_accumulate",
      "_weight_int4pack_mm_for_cpu",
      "_weight_int8pack_mm",
      "_weight_norm_interface",
      "_weight_norm_interface_backward",
      "batch_norm_backward",
      "batch_norm_update_stats",
      "binary_cross_entropy",
      "binary_cross_entropy_backward",
      "binary_cross_entropy_with_logits",
      "fractional_max_pool3d_backward",
      "glu_jvp",
      "huber_loss",
      "huber_loss_backward",
      "linalg__powsum",
      "max_unpool2d",
      "max_unpool3d",
      "mkldnn_convolution",
      "mse_loss_backward",
      "multi_margin_loss",
      "multi_margin_loss_backward",
      "multilabel_margin_loss_backward",
      "multilabel_margin_loss_forward",
      "nll_loss2d_backward",
      "nll_loss2d_forward",
      "randint_like.Tensor_generator",
      "randperm.generator",
      "slow_conv3d_forward",
      "slow_conv_dilated2d",
      "slow_conv_dilated3d",
      "slow_conv_transpose2d",
      "slow_conv_transpose3d",
      "smooth_l1_loss_backward",
  };
  return rules;
}

TEST(RuleCoverageTest, EveryShapeRuleIsSampled) {
  const std::set<std::string> recorded = recorded_operators();
  for (const auto& [rule, kernel] : ops::shape_rules().all()) {
    if (!runs_on_cpu(rule) || not_sampled().count(rule) != 0) continue;
    EXPECT_TRUE(recorded.count("aten." + rule)) << rule << " has a rule but no sample";
  }
}

}  // namespace
}  // namespace ahead::samples
