#include "native/launch/sliced_executable.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>

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

}  // namespace

aot::Executable run_sliced(const SlicedCall& call, aot::Executable slice) {
  std::vector<TensorMeta> metas;
  for (const Graph::Output& output : call.whole->outputs()) metas.push_back(output.value->meta);
  return
      [metas = std::move(metas), inputs = call.inputs, outputs = call.outputs, batch = call.batch,
       step = call.step, slice = std::move(slice)](std::vector<at::Tensor>&& args) {
        std::vector<at::Tensor> results;
        for (const TensorMeta& meta : metas)
          results.push_back(at::detail::empty_strided_cpu(meta.sizes, meta.strides, meta.dtype));
        for (int64_t first = 0; first < batch; first += step) {
          std::vector<at::Tensor> parts;
          for (size_t i = 0; i < args.size(); ++i)
            parts.push_back(part_of(args[i], inputs[i], first, step));
          const std::vector<at::Tensor> made = slice(std::move(parts));
          for (size_t i = 0; i < results.size(); ++i)
            part_of(results[i], outputs[i], first, step).copy_(made[i]);
        }
        return results;
      };
}

}  // namespace ahead::native
