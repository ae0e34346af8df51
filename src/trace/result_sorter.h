#pragma once

#include <unordered_map>
#include <vector>

#include "trace/capture.h"
#include "trace/tracer.h"

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

  ResultSorter(Tracer& tracer, const std::vector<at::Tensor>& results);

  /// One for each result. For kinds that name an input, `base` is its position among
  /// Tracer::lifted().
  const std::vector<ResultFacts>& facts() const { return facts_; }
  const std::vector<Base>& bases() const { return bases_; }
  /// The traced tensor that stands for a result.
  const at::Tensor& traced(size_t result) const { return traced_[result]; }

 private:
  void describe(size_t i);
  void sort_group(const std::vector<size_t>& group);
  bool find_base_among(const std::vector<size_t>& group);
  int32_t add_base(const std::vector<size_t>& group, Value* root);
  void make_view(size_t i, ResultFacts::Kind kind, int32_t base, const at::Tensor& base_tensor);

  std::vector<at::Tensor> traced_;
  std::vector<ResultFacts> facts_;
  std::vector<Base> bases_;
};

}  // namespace ahead::tracing
