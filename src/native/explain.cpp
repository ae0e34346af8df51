#include "native/explain.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>

#include "native/views.h"

namespace ahead::native {
namespace {

std::string bytes_in_words(int64_t bytes) {
  constexpr int64_t thousand = 1000;
  const char* unit = "B";
  double number = static_cast<double>(bytes);
  for (const char* larger : {"kB", "MB", "GB"}) {
    if (number < thousand) break;
    number /= thousand;
    unit = larger;
  }
  char text[32];
  std::snprintf(text, sizeof text, number < 10 && bytes >= thousand ? "%.1f %s" : "%.0f %s", number,
                unit);
  return text;
}

std::string counted(size_t count, const char* what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

/// The memory that a buffer reaches: each element once.
int64_t memory_of(const Kernel& kernel, const Buffer& buffer) {
  auto bytes = static_cast<int64_t>(c10::elementSize(buffer.dtype));
  for (size_t axis = 0; axis < kernel.rows.size(); ++axis)
    if (buffer.rows[axis] != 0) bytes *= kernel.rows[axis];
  for (size_t axis = 0; axis < kernel.columns.size(); ++axis)
    if (buffer.columns[axis] != 0) bytes *= kernel.columns[axis];
  return bytes;
}

/// "8.0 MB of 2 tensors".
std::string traffic(const Kernel& kernel, bool results) {
  std::map<std::pair<int32_t, int64_t>, int64_t> bytes;  // of tensors and where their parts begin
  std::set<int32_t> tensors;
  for (const Buffer& buffer : kernel.buffers) {
    if (buffer.is_result != results) continue;
    tensors.insert(buffer.index);
    int64_t& most = bytes[{buffer.index, buffer.offset}];
    most = std::max(most, memory_of(kernel, buffer));
  }
  int64_t all = 0;
  for (const auto& [part, own] : bytes) all += own;
  return bytes_in_words(all) + " of " + counted(tensors.size(), "tensor");
}

std::string operators_in(const Graph& graph) {
  std::string names;
  for (const Node& node : graph.nodes()) names += (names.empty() ? "" : ", ") + node.op().name();
  return names;
}

const char* in_words(KernelOrigin origin) {
  switch (origin) {
    case KernelOrigin::Process:
      return "was there";
    case KernelOrigin::Cache:
      return "found in the cache";
    case KernelOrigin::Compiler:
      return "compiled";
    default:
      return "could not be had, ATen runs it";
  }
}

/// The most memory that values of a graph take at once, inputs apart, if each is freed after its
/// last use.
int64_t peak_of(const Graph& graph) {
  std::map<const Value*, int64_t> last_use;
  int64_t position = 0;
  for (const Node& node : graph.nodes()) {
    ++position;
    node.for_each_operand([&](const Value* value) { last_use[owner_of(value)] = position; });
  }
  for (const Graph::Output& output : graph.outputs())
    if (output.value != nullptr) last_use[owner_of(output.value)] = position + 1;
  std::map<int64_t, int64_t> freed;
  int64_t live = 0, most = 0;
  position = 0;
  for (const Node& node : graph.nodes()) {
    ++position;
    for (const Value* result : node.results()) {
      if (result == nullptr || owner_of(result) != result) continue;
      live += bytes_of(*result);
      freed[std::max(position, last_use[result])] += bytes_of(*result);
    }
    most = std::max(most, live);
    live -= freed[position];
  }
  return most;
}

}  // namespace

void log_lines(const char* topic, const std::string& name, const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines)
    text += "[ahead " + std::string(topic) + "] " + name + ": " + line + "\n";
  std::fputs(text.c_str(), stderr);
}

std::string explain_kernel(const Group& group, KernelOrigin origin) {
  const Kernel& kernel = group.kernel;
  return group.printed.name + " (" + in_words(origin) + ") computes " + operators_in(*group.graph) +
         " for " + std::to_string(kernel.num_rows()) + " rows of " +
         std::to_string(kernel.num_columns()) + "; it reads " + traffic(kernel, false) +
         " and writes " + traffic(kernel, true);
}

std::vector<std::string> explain_memory(const Graph& graph, const Graph& fused,
                                        const std::vector<Group>& groups) {
  std::vector<std::string> lines;
  for (const Group& group : groups) {
    int64_t kept = 0;
    size_t count = 0;
    for (const Node& node : group.graph->nodes()) {
      for (const Value* result : node.results()) {
        if (result == nullptr || result->output_uses() != 0 || owner_of(result) != result) continue;
        kept += bytes_of(*result);
        ++count;
      }
    }
    lines.push_back(
        group.printed.name + " keeps " + bytes_in_words(kept) + " of " +
        counted(count, "intermediate") + " in registers and the cache; row buffers take " +
        bytes_in_words(group.printed.scratch_bytes) + " for each thread, sums over rows " +
        bytes_in_words(group.printed.sum_bytes) + " for each block of rows");
  }
  lines.push_back("results and intermediates take at most " + bytes_in_words(peak_of(fused)) +
                  " at once, operator by operator " + bytes_in_words(peak_of(graph)));
  return lines;
}

}  // namespace ahead::native
