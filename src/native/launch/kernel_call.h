#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "ahead/graph.h"
#include "ahead/interpret.h"
#include "native/loops/kernel.h"
#include "native/print/print_kernel.h"

namespace ahead::native {

/// A compiled kernel with what each call of it passes. Immutable; threads may call it at once.
class KernelCall {
 public:
  /// `graph` is what the kernel was lowered from, `function` the address of its code. `targets`:
  /// as in Group.
  KernelCall(const Graph& graph, Kernel kernel, PrintedKernel printed, void* function,
             const std::vector<int32_t>& targets = {});

  /// Takes a tensor for each input of the graph and returns one for each output. A result may lie
  /// where an argument was that is `donated` (as in CompileRequest), if that is the last tensor on
  /// its memory. What is written to an argument is returned as that very tensor.
  std::vector<at::Tensor> operator()(std::vector<at::Tensor>&& args,
                                     const std::vector<bool>& donated = {}) const;

 private:
  using Function = void (*)(char* const* buffers, const int64_t* sizes, const double* numbers,
                            int64_t row, int64_t rows_end, int64_t first_column,
                            int64_t num_columns, char* sums, char* scratch);

  std::vector<at::Tensor> make_results(std::vector<at::Tensor>& args,
                                       const std::vector<bool>& donated) const;
  void run(char* const* buffers) const;
  void run_blocks(char* const* buffers) const;
  bool are_in_bounds(const std::vector<at::Tensor>& args) const;
  void add_up(size_t index, const char* partial, double* totals) const;
  void finish_sum(size_t index, const char* partial, char* const* buffers) const;
  void call(char* const* buffers, int64_t begin, int64_t end, char* sums) const;

  const Kernel kernel_;
  const PrintedKernel printed_;
  const Function function_;
  std::vector<TensorMeta> arguments_, results_;
  std::vector<size_t> result_bytes_;     ///< of the memory of each result
  std::vector<bool> has_plain_strides_;  ///< for each result: those of a contiguous tensor
  /// Says what is wrong with an argument that is out of bounds; there if any has bounds.
  std::shared_ptr<const Interpreter> by_aten_;
  std::vector<std::vector<int32_t>> overwritable_;  ///< arguments, for each result
  std::vector<int32_t> targets_;                    ///< the argument to write to; -1: none
  int64_t num_rows_, inner_columns_;
  bool divides_columns_;  ///< parts of the work are columns rather than rows
  int64_t count_;         ///< of rows, or of columns
  int64_t grain_;         ///< as many of them for one thread at least
  int64_t num_blocks_;    ///< each of which has sums of its own
};

}  // namespace ahead::native
