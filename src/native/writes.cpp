#include "native/writes.h"

#include <algorithm>
#include <limits>

#include "ops/facts/may_write.h"

namespace ahead::native {

Writes::Writes(const Graph& graph) : num_values_(graph.value_capacity()), aliasing_(graph) {
  size_t position = 0;
  for (const Node& node : graph.nodes()) {
    if (ops::may_write(node)) {
      Writer writer{position, {}};
      const auto add = [&](const Value* value) {
        writer.memory.push_back(aliasing_.group(value));
      };
      if (node.op().in_dispatcher() && ops::facts(node.op()).hidden_writes.empty()) {
        for (const size_t written : ops::facts(node.op()).writes)
          node.args()[written].for_each_value(add);
      } else {
        node.for_each_operand(add);
      }
      writers_.push_back(std::move(writer));
    }
    ++position;
  }
}

bool Writes::may_write(const Writer& writer, const Value* value) const {
  return value->id() < num_values_ && std::find(writer.memory.begin(), writer.memory.end(),
                                                aliasing_.group(value)) != writer.memory.end();
}

bool Writes::may_change(const Value* value, size_t first, size_t last) const {
  return std::any_of(writers_.begin(), writers_.end(), [&](const Writer& writer) {
    return writer.position > first && writer.position < last && may_write(writer, value);
  });
}

bool Writes::may_ever_change(const Value* value) const {
  return std::any_of(writers_.begin(), writers_.end(),
                     [&](const Writer& writer) { return may_write(writer, value); });
}

}  // namespace ahead::native
