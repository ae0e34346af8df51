#include "native/place/reuse.h"

#include <algorithm>

#include "native/place/phases.h"

namespace ahead::native {
namespace {

/// Whether each row and column has an element of its own.
bool has_all_elements(const Kernel& kernel, const Buffer& buffer) {
  std::vector<std::pair<int64_t, int64_t>> axes;  // distance and size
  for (size_t i = 0; i < kernel.rows.size(); ++i) axes.emplace_back(buffer.rows[i], kernel.rows[i]);
  for (size_t i = 0; i < kernel.columns.size(); ++i)
    axes.emplace_back(buffer.columns[i], kernel.columns[i]);
  std::sort(axes.begin(), axes.end());
  int64_t reach = 0;  // from the first element to the last along the axes so far
  for (const auto& [distance, size] : axes) {
    if (size == 1) continue;
    if (distance <= reach) return false;
    reach += distance * (size - 1);
  }
  return true;
}

/// Whether an argument is read where the result is written, and not in any other way.
bool is_read_like(const Kernel& kernel, int32_t argument, const Buffer& result) {
  const auto is_of_argument = [&](int32_t id) {
    const Buffer& buffer = kernel.buffers[static_cast<size_t>(id)];
    return !buffer.is_result && buffer.index == argument;
  };
  const bool lies_alike =
      std::all_of(kernel.buffers.begin(), kernel.buffers.end(), [&](const Buffer& buffer) {
        return buffer.is_result || buffer.index != argument ||
               (buffer.rows == result.rows && buffer.columns == result.columns &&
                buffer.offset == result.offset);
      });
  return lies_alike && std::all_of(kernel.terms.begin(), kernel.terms.end(), [&](const Term& term) {
           return term.buffer < 0 || term.op == Op::Load || !is_of_argument(term.buffer);
         });
}

/// The last pass that reads an argument from its own memory; -1: none does.
int32_t last_read(const Kernel& kernel, const Phases& phases, int32_t argument) {
  int32_t last = -1;
  for (size_t pass = 0; pass < phases.phases.size(); ++pass) {
    for (const TermId id : phases.phases[pass].terms) {
      const Term& term = kernel.terms[static_cast<size_t>(id)];
      if (term.op != Op::Load) continue;
      const Buffer& buffer = kernel.buffers[static_cast<size_t>(term.buffer)];
      const bool is_kept = static_cast<int32_t>(pass) > phases.level[static_cast<size_t>(id)] &&
                           phases.row_buffers[static_cast<size_t>(id)] >= 0;
      if (!buffer.is_result && buffer.index == argument && !is_kept)
        last = static_cast<int32_t>(pass);
    }
  }
  return last;
}

}  // namespace

/// A row and column are worked off by one thread, pass after pass, and a pass reads what it needs
/// of them before it writes. So it is enough that the argument and the result have the same element
/// for the same row and column, and no two of these share one. What is demanded of the arguments is
/// known only when results are there, and who catches the error finds the arguments as they were.
std::vector<std::vector<int32_t>> overwritable_arguments(const Kernel& kernel, size_t num_results) {
  std::vector<std::vector<int32_t>> arguments(num_results);
  if (!kernel.demands.empty()) return arguments;
  const Phases phases = divide(kernel);
  std::vector<size_t> num_parts(num_results);
  for (const Buffer& buffer : kernel.buffers) {
    if (buffer.is_result) ++num_parts[static_cast<size_t>(buffer.index)];
  }
  for (const Kernel::Store& store : kernel.stores) {
    const Buffer& result = kernel.buffers[static_cast<size_t>(store.buffer)];
    if (num_parts[static_cast<size_t>(result.index)] != 1) continue;
    if (!has_all_elements(kernel, result) || kernel.num_columns() == 1) continue;
    const int32_t written = phases.level[static_cast<size_t>(store.term)];
    for (const Buffer& buffer : kernel.buffers) {
      if (buffer.is_result || buffer.dtype != result.dtype) continue;
      if (is_read_like(kernel, buffer.index, result) &&
          last_read(kernel, phases, buffer.index) <= written)
        arguments[static_cast<size_t>(result.index)].push_back(buffer.index);
    }
  }
  return arguments;
}

}  // namespace ahead::native
