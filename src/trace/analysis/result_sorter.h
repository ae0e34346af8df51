#pragma once

#include <map>
#include <unordered_map>
#include <vector>

#include "trace/joint_trace.h"
#include "trace/outside.h"

namespace ahead::tracing {

/// Finds out which results of a traced function share memory with its inputs and with each other,
/// and which of them a caller can make again as views.
class ResultSorter {
 public:
  /// A tensor that several results are views of, without being a result itself.
  struct Base {
    at::Tensor tensor;  ///< undefined if autograd does not know of it
    Value* value;
  };

  ResultSorter(Outside& outside, const std::vector<at::Tensor>& results);

  /// One for each result, then one for each of reset(): what its memory is now. For kinds that name
  /// an input, `base` is its position among Outside::lifted().
  const std::vector<ResultFacts>& facts() const { return facts_; }
  const std::vector<Base>& bases() const { return bases_; }
  /// The positions among Outside::lifted() of tensors that have other memory now.
  const std::vector<size_t>& reset() const { return reset_; }
  /// The traced tensor that stands for a result.
  const at::Tensor& traced(size_t result) const { return traced_[result]; }

 private:
  void describe(size_t i);
  void sort(size_t i);
  bool find_input(size_t i);
  bool find_viewed_input(size_t i);
  void find_inputs();
  bool is_memory(size_t i) const { return i >= num_results_; }
  void check_base(size_t i) const;
  void check_custom_view(size_t i) const;
  void sort_group(const std::vector<size_t>& group);
  bool find_base_among(const std::vector<size_t>& group);
  int32_t add_base(const std::vector<size_t>& group, Value* root);
  void check_memory_of_its_own(size_t i, ResultFacts::Kind kind,
                               const at::Tensor& base_tensor) const;
  void make_view(size_t i, ResultFacts::Kind kind, int32_t base, const at::Tensor& base_tensor);

  Outside& outside_;
  size_t num_results_;
  std::vector<at::Tensor> traced_;  ///< the results, then what has other memory now
  std::vector<ResultFacts> facts_;
  std::vector<Base> bases_;
  std::vector<size_t> reset_;
  std::unordered_map<const void*, size_t> inputs_;  ///< by tensor
  std::unordered_map<const void*, std::vector<size_t>> memories_;
  std::unordered_map<const void*, size_t> seen_;
  std::map<size_t, std::vector<size_t>> groups_;  ///< that share memory, by the first of each
  std::unordered_map<const void*, size_t> group_of_;
};

}  // namespace ahead::tracing
