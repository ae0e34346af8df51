#include "ahead/detail/tree_function.h"

#include <algorithm>

#include "ahead/errors.h"

namespace ahead::detail {

const at::Tensor& placeholder() {
  static const at::Tensor tensor(c10::make_intrusive<c10::TensorImpl>(
      c10::DispatchKeySet(c10::DispatchKey::Meta), caffe2::TypeMeta::Make<float>(),
      c10::Device(at::kMeta)));
  return tensor;
}

bool are_arguments_kept(const FlatTree& before, const FlatTree& after) {
  return before.spec == after.spec &&
         std::equal(before.leaves.begin(), before.leaves.end(), after.leaves.begin(),
                    [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); });
}

void check_arguments_kept(const FlatTree& before, const FlatTree& after) {
  const char* advice =
      ". Write into a tensor with copy_ or another in-place operator, or return the new value.";
  if (before.spec != after.spec) {
    throw Unsupported("trace", "arguments: the function was given " + before.spec.str() +
                                   " and left " + after.spec.str() + advice);
  }
  for (size_t i = 0; i < before.leaves.size(); ++i) {
    if (before.leaves[i].is_same(after.leaves[i])) continue;
    throw Unsupported("trace", "arguments: the function assigns to tensor " + std::to_string(i) +
                                   " of its arguments, which are passed by reference" + advice);
  }
}

}  // namespace ahead::detail
