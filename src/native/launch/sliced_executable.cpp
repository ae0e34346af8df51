#include "native/launch/sliced_executable.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <memory>

#include "native/launch/parallel.h"
#include "native/products/multiply.h"

namespace ahead::native {
namespace {

/// The part of a tensor that belongs to the slice which begins with this matrix.
at::Tensor part_of(const at::Tensor& tensor, const Cut& cut, int64_t first, int64_t step) {
  if (cut.empty()) return tensor;
  c10::SmallVector<int64_t, 6> sizes(tensor.sizes());
  int64_t offset = tensor.storage_offset();
  for (const SlicedDim& dim : cut) {
    offset += first / dim.inner % dim.size * tensor.stride(dim.dim);
    sizes[static_cast<size_t>(dim.dim)] = dim.is_last ? step : 1;
  }
  auto impl = c10::make_intrusive<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(tensor.storage()), tensor.key_set(), tensor.dtype());
  impl->set_sizes_and_strides(sizes, tensor.strides(), offset);
  return at::Tensor(std::move(impl));
}

/// A call of a sub-graph that runs slice by slice.
class SlicedRun {
 public:
  SlicedRun(const SlicedCall& call, aot::Executable slice)
      : inputs_(call.inputs),
        outputs_(call.outputs),
        step_(call.step),
        num_slices_(call.batch / call.step),
        multiplier_(call.multiplier),
        slice_(std::move(slice)) {
    for (const Graph::Output& output : call.whole->outputs()) metas_.push_back(output.value->meta);
  }

  std::vector<at::Tensor> operator()(std::vector<at::Tensor>&& args) const {
    std::vector<at::Tensor> results;
    for (const TensorMeta& meta : metas_)
      results.push_back(at::detail::empty_strided_cpu(meta.sizes, meta.strides, meta.dtype));
    // Where there are enough of them each thread takes slices of its own, and waits for no other.
    if (num_slices_ < fewest_for_each_thread * at::get_num_threads()) {
      run(args, 0, num_slices_, results);
      return results;
    }
    const at::ThreadLocalState state;
    in_parallel(num_slices_, 1, [&](int64_t begin, int64_t end) {
      const at::ThreadLocalStateGuard as_the_caller(state);
      run(args, begin, end, results);
    });
    return results;
  }

 private:
  /// So that threads that run at once have no more than half of a large tensor in their slices.
  static constexpr int64_t fewest_for_each_thread = 2;

  void run(const std::vector<at::Tensor>& args, int64_t begin, int64_t end,
           const std::vector<at::Tensor>& results) const {
    const at::AutoDispatchBelowADInplaceOrView below_views;
    const c10::impl::ExcludeDispatchKeyGuard below_autocast(c10::autocast_dispatch_keyset);
    for (int64_t first = begin * step_; first < end * step_; first += step_) {
      std::vector<at::Tensor> parts;
      parts.reserve(args.size());
      for (size_t i = 0; i < args.size(); ++i)
        parts.push_back(part_of(args[i], inputs_[i], first, step_));
      const std::vector<at::Tensor> made = slice_(std::move(parts));
      auto next = made.begin();
      for (size_t i = 0; i < results.size(); ++i) {
        const SlicedResult& result = outputs_[i];
        at::Tensor part = part_of(results[i], result.cut, first, step_);
        if (!result.is_product) {
          part.copy_(*next++);
          continue;
        }
        const at::Tensor left = *next++, right = *next++;
        multiply_batches(part, result.is_transposed[0] ? left.transpose(1, 2) : left,
                         result.is_transposed[1] ? right.transpose(1, 2) : right, multiplier_);
      }
    }
  }

  const std::vector<Cut> inputs_;
  const std::vector<SlicedResult> outputs_;
  const int64_t step_, num_slices_;
  const Multiplier multiplier_;
  const aot::Executable slice_;
  std::vector<TensorMeta> metas_;  ///< of the results
};

}  // namespace

aot::Executable run_sliced(const SlicedCall& call, aot::Executable slice) {
  return [run = std::make_shared<const SlicedRun>(call, std::move(slice))](
             std::vector<at::Tensor>&& args) { return (*run)(std::move(args)); };
}

}  // namespace ahead::native
