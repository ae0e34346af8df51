#include "native/views.h"

#include <algorithm>

#include "ops/facts/aliasing.h"
#include "ops/facts/facts.h"

namespace ahead::native {
namespace {

bool makes_views(const Node& node) {
  const ops::ViewKind kind = ops::facts(node.op()).view;
  return kind == ops::ViewKind::View || kind == ops::ViewKind::MultiView;
}

}  // namespace

bool is_found_by_place(const Value& value) {
  static const Operator *const as_strided = Operator::find("aten.as_strided"),
                               *const scatter = Operator::find("aten.as_strided_scatter");
  return std::any_of(value.users().begin(), value.users().end(), [&](const Node* user) {
    if (&user->op() == as_strided || &user->op() == scatter) return true;
    if (!makes_views(*user)) return false;
    return std::any_of(user->results().begin(), user->results().end(), [&](const Value* view) {
      return view != nullptr && (c10::elementSize(view->meta.dtype) !=
                                     c10::elementSize(value.meta.dtype) ||
                                 is_found_by_place(*view));
    });
  });
}

const Value* owner_of(const Value* value) {
  while (value->producer() != nullptr && ops::is_layout_view(*value->producer()))
    value = value->producer()->args()[0].value();
  return value;
}

int64_t bytes_of(const TensorMeta& meta) {
  return meta.numel().fixed() * static_cast<int64_t>(c10::elementSize(meta.dtype));
}

void move_on(Value& value, int64_t elements) {
  value.meta.offset = value.meta.offset + Dim(elements);
  for (const Node* user : value.users()) {
    if (!makes_views(*user)) continue;
    for (Value* view : user->results()) {
      if (view != nullptr) move_on(*view, elements);
    }
  }
}

}  // namespace ahead::native
