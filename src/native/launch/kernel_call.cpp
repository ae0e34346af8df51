#include "native/launch/kernel_call.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/record_function.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstring>

#include "ir/tensor_meta.h"
#include "memory/scratch.h"
#include "native/launch/parallel.h"
#include "native/place/reuse.h"

namespace ahead::native {
namespace {

/// Work in additions that pays for handing it to another thread.
constexpr int64_t parallel_work = 1 << 17;
/// How many elements are summed up before their sum is added to others. Depends on nothing else, so
/// that results do not depend on the number of threads.
constexpr int64_t block_elements = 1 << 14;
constexpr int64_t most_blocks = 64;
/// Columns are divided at multiples of this alone, which are multiples of all vectors' lanes:
/// kernels for whole vectors have nothing that does a part of one.
constexpr int64_t column_unit = 64;

int64_t work_per_cell(const Kernel& kernel) {
  int64_t work = 1;
  for (const Term& term : kernel.terms) {
    if (term.by_column || is_row_reduction(term.op)) work += traits_of(term.op).cost;
  }
  return work;
}

/// Whether the memory of a tensor holds its values, in the order that kernels expect.
bool is_laid_out(const at::Tensor& tensor, const TensorMeta& meta) {
  constexpr c10::DispatchKeySet kNotItsValues{
      c10::DispatchKey::Conjugate, c10::DispatchKey::Negative, c10::DispatchKey::ZeroTensor};
  if (tensor.key_set().has_any(kNotItsValues) || tensor.sizes() != meta.sizes) return false;
  if (tensor.strides() == meta.strides) return true;
  // Of a dimension with one element it does not matter.
  for (size_t dim = 0; dim < meta.sizes.size(); ++dim) {
    const auto at = static_cast<int64_t>(dim);
    if (tensor.size(at) != 1 && tensor.stride(at) != meta.strides[dim]) return false;
  }
  return true;
}

/// ATen's kernels may lay their results out otherwise than the graph says.
at::Tensor laid_out(const at::Tensor& tensor, const TensorMeta& meta) {
  at::Tensor copy = at::empty_strided(meta.sizes, meta.strides, tensor.options());
  tensor._is_zerotensor() ? copy.zero_() : copy.copy_(tensor);
  return copy;
}

/// A tensor for a result in the memory of a tensor that nobody needs any more; undefined if there
/// is somebody else on it, or if it is not of that size.
at::Tensor in_place_of(const at::Tensor& tensor, const TensorMeta& meta) {
  const c10::Storage& storage = tensor.storage();
  const size_t bytes =
      at::detail::computeStorageNbytes(meta.sizes, meta.strides, c10::elementSize(meta.dtype));
  // Memory that somebody lent to a tensor (at::from_blob) outlives that.
  const bool is_last =
      tensor.use_count() == 1 && storage.use_count() == 1 && storage.allocator() != nullptr;
  if (!is_last || tensor.storage_offset() != 0 || storage.nbytes() != bytes) return {};
  auto impl = c10::make_intrusive<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  impl->set_sizes_and_strides(meta.sizes, meta.strides);
  return at::Tensor(std::move(impl));
}

/// A tensor with any content, as at::empty_strided makes it: what that finds out first is known.
at::Tensor empty(const TensorMeta& meta, size_t bytes, bool is_contiguous) {
  c10::Allocator* const allocator = c10::GetCPUAllocator();
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes, allocator->allocate(bytes), allocator,
      /*resizable=*/true);
  auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(std::move(storage)),
                                                   c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                   c10::scalarTypeToTypeMeta(meta.dtype));
  if (is_contiguous) {
    impl->set_sizes_contiguous(meta.sizes);
  } else {
    impl->set_sizes_and_strides(meta.sizes, meta.strides);
  }
  return at::Tensor(std::move(impl));
}

void write(char* to, int64_t at, at::ScalarType dtype, double value) {
  switch (dtype) {
    case at::kDouble:
      reinterpret_cast<double*>(to)[at] = value;
      break;
    case at::kBFloat16:
      reinterpret_cast<at::BFloat16*>(to)[at] = static_cast<float>(value);
      break;
    case at::kHalf:
      reinterpret_cast<at::Half*>(to)[at] = static_cast<float>(value);
      break;
    default:
      reinterpret_cast<float*>(to)[at] = static_cast<float>(value);
  }
}

template <class Number>
bool lie_within(const Number* numbers, int64_t count, const Kernel::Bound& bound) {
  const int64_t other = bound.other.value_or(0);
  int64_t within = 0;
  for (int64_t i = 0; i < count; ++i)
    within += (numbers[i] >= 0 && numbers[i] < bound.size) || (bound.other && numbers[i] == other);
  return within == count;
}

}  // namespace

KernelCall::KernelCall(const Graph& graph, Kernel kernel, PrintedKernel printed, void* function,
                       const std::vector<int32_t>& targets)
    : kernel_(std::move(kernel)),
      printed_(std::move(printed)),
      function_(reinterpret_cast<Function>(function)),
      num_rows_(kernel_.num_rows()),
      inner_columns_(kernel_.columns.empty() ? 1 : kernel_.columns.back()) {
  for (const Graph::Input& input : graph.inputs()) arguments_.push_back(input.value->meta);
  for (const Graph::Output& output : graph.outputs()) {
    const TensorMeta& meta = output.value->meta;
    results_.push_back(meta);
    result_bytes_.push_back(
        at::detail::computeStorageNbytes(meta.sizes, meta.strides, c10::elementSize(meta.dtype)));
    has_plain_strides_.push_back(meta.strides == contiguous_strides(meta.sizes));
  }
  if (!kernel_.bounds.empty()) by_aten_ = std::make_shared<const Interpreter>(graph);
  overwritable_ = overwritable_arguments(kernel_, results_.size());
  targets_ = targets;
  targets_.resize(results_.size(), -1);
  for (size_t i = 0; i < targets_.size(); ++i) {
    const std::vector<int32_t>& may_be = overwritable_[i];
    if (std::find(may_be.begin(), may_be.end(), targets_[i]) == may_be.end()) targets_[i] = -1;
  }
  const int64_t elements = num_rows_ * kernel_.num_columns();
  divides_columns_ = printed_.may_divide_columns && num_rows_ < most_blocks;
  count_ = divides_columns_ ? inner_columns_ : num_rows_;
  const int64_t each = std::max<int64_t>(elements / count_, 1);
  grain_ = std::max<int64_t>(parallel_work / (work_per_cell(kernel_) * each), 1);
  if (divides_columns_) grain_ = (grain_ + column_unit - 1) / column_unit * column_unit;
  num_blocks_ = 0;
  if (!kernel_.sums.empty())
    num_blocks_ = std::clamp<int64_t>(elements / block_elements, 1, std::min(most_blocks, count_));
}

void KernelCall::call(char* const* buffers, int64_t begin, int64_t end, char* sums) const {
  static thread_local memory::Scratch::Place place;
  const memory::Scratch rows(place, static_cast<size_t>(printed_.scratch_bytes));
  char* const scratch = rows.get();
  if (divides_columns_) {
    function_(buffers, printed_.sizes.data(), printed_.numbers.data(), 0, num_rows_, begin,
              end - begin, sums, scratch);
  } else {
    function_(buffers, printed_.sizes.data(), printed_.numbers.data(), begin, end, 0,
              inner_columns_, sums, scratch);
  }
}

void KernelCall::run(char* const* buffers) const {
  if (num_blocks_ != 0) return run_blocks(buffers);
  if (count_ <= grain_) return call(buffers, 0, count_, nullptr);
  const int64_t unit = divides_columns_ ? column_unit : 1;
  in_parallel((count_ + unit - 1) / unit, grain_ / unit, [&](int64_t begin, int64_t end) {
    call(buffers, begin * unit, std::min(end * unit, count_), nullptr);
  });
}

void KernelCall::run_blocks(char* const* buffers) const {
  static thread_local memory::Scratch::Place place;
  const int64_t bytes = printed_.sum_bytes;
  const memory::Scratch partial(place, static_cast<size_t>(bytes * num_blocks_));
  char* const sums = partial.get();
  const auto begin_of = [&](int64_t block) {
    const int64_t begin = count_ * block / num_blocks_;
    return divides_columns_ && block != num_blocks_ ? begin / column_unit * column_unit : begin;
  };
  const auto run_some = [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) {
      char* const own = sums + bytes * block;
      std::memset(own, 0, static_cast<size_t>(bytes));
      call(buffers, begin_of(block), begin_of(block + 1), own);
    }
  };
  if (count_ <= grain_) {
    run_some(0, num_blocks_);
  } else {
    in_parallel(num_blocks_, 1, run_some);
  }
  for (const Kernel::Demand& demand : kernel_.demands) {
    double count = 0;
    add_up(static_cast<size_t>(demand.sum), sums, &count);
    if (count != 0) demand.fail();
  }
  for (size_t i = 0; i < kernel_.sums.size(); ++i) finish_sum(i, sums, buffers);
}

/// Adds up what the blocks have of a sum, in their order.
void KernelCall::add_up(size_t index, const char* partial, double* totals) const {
  const Kernel::Sum& sum = kernel_.sums[index];
  const size_t axes = kernel_.rows.size() + kernel_.columns.size();
  const int64_t offset = printed_.sizes[axes * (1 + kernel_.buffers.size()) + index];
  const int64_t length = kernel_.length(sum);
  std::fill_n(totals, length, 0.0);
  const auto add = [&](auto zero) {
    for (int64_t block = 0; block < num_blocks_; ++block) {
      const auto* own =
          reinterpret_cast<const decltype(zero)*>(partial + printed_.sum_bytes * block + offset);
      for (int64_t i = 0; i < length; ++i) totals[i] += own[i];
    }
  };
  kernel_.terms[static_cast<size_t>(sum.term)].type == Type::F64 ? add(double{}) : add(float{});
}

void KernelCall::finish_sum(size_t index, const char* partial, char* const* buffers) const {
  const Kernel::Sum& sum = kernel_.sums[index];
  if (sum.buffer < 0) return;
  const Buffer& buffer = kernel_.buffers[static_cast<size_t>(sum.buffer)];
  double divisor = sum.divisor;
  if (sum.over >= 0) add_up(static_cast<size_t>(sum.over), partial, &divisor);
  static thread_local memory::Scratch::Place place;
  const int64_t length = kernel_.length(sum);
  const memory::Scratch memory(place, static_cast<size_t>(length) * sizeof(double));
  auto* const totals = reinterpret_cast<double*>(memory.get());
  add_up(index, partial, totals);
  const bool is_in_place = sum.kind == Kernel::Sum::Kind::EachElement;
  for (int64_t column = 0; column < length; ++column) {
    int64_t at = is_in_place ? column : 0;
    int64_t rest = column;
    for (size_t axis = kernel_.columns.size(); !is_in_place && axis-- > 0;) {
      at += rest % kernel_.columns[axis] * buffer.columns[axis];
      rest /= kernel_.columns[axis];
    }
    write(buffers[sum.buffer], at, buffer.dtype, totals[column] / divisor);
  }
}

bool KernelCall::are_in_bounds(const std::vector<at::Tensor>& args) const {
  return std::all_of(kernel_.bounds.begin(), kernel_.bounds.end(), [&](const Kernel::Bound& bound) {
    const at::Tensor& given = args[static_cast<size_t>(bound.argument)];
    const at::Tensor numbers = given.is_contiguous() ? given : given.contiguous();
    return numbers.scalar_type() == at::kLong
               ? lie_within(numbers.const_data_ptr<int64_t>(), numbers.numel(), bound)
               : lie_within(numbers.const_data_ptr<int32_t>(), numbers.numel(), bound);
  });
}

/// Only an argument whose memory no result took yet has no other tensor on it.
std::vector<at::Tensor> KernelCall::make_results(std::vector<at::Tensor>& args,
                                                 const std::vector<bool>& donated) const {
  std::vector<at::Tensor> results(results_.size());
  for (size_t i = 0; i < results.size(); ++i) {
    const TensorMeta& meta = results_[i];
    if (targets_[i] >= 0) results[i] = args[static_cast<size_t>(targets_[i])];
    for (const int32_t argument : overwritable_[i]) {
      const auto index = static_cast<size_t>(argument);
      if (!results[i].defined() && index < donated.size() && donated[index])
        results[i] = in_place_of(args[index], meta);
    }
    if (!results[i].defined())
      results[i] = empty(meta, result_bytes_[i], has_plain_strides_[i]);
  }
  return results;
}

std::vector<at::Tensor> KernelCall::operator()(std::vector<at::Tensor>&& args,
                                               const std::vector<bool>& donated) const {
  RECORD_FUNCTION(printed_.name.c_str(), c10::ArrayRef<const c10::IValue>());
  for (size_t i = 0; i < args.size(); ++i) {
    if (!is_laid_out(args[i], arguments_[i])) args[i] = laid_out(args[i], arguments_[i]);
  }
  if (by_aten_ != nullptr && !are_in_bounds(args)) return (*by_aten_)(std::move(args));
  std::vector<at::Tensor> results = make_results(args, donated);
  c10::SmallVector<char*, 24> buffers;
  for (const Buffer& buffer : kernel_.buffers) {
    const at::Tensor& tensor = buffer.is_result ? results[static_cast<size_t>(buffer.index)]
                                                : args[static_cast<size_t>(buffer.index)];
    buffers.push_back(static_cast<char*>(tensor.unsafeGetTensorImpl()->storage().mutable_data()) +
                      (tensor.storage_offset() + buffer.offset) *
                          static_cast<int64_t>(tensor.element_size()));
  }
  run(buffers.data());
  return results;
}

}  // namespace ahead::native
