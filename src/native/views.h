#pragma once

#include "ahead/graph.h"

namespace ahead::native {

/// Whether somebody looks for elements of the value, or of views of it, by their place in its
/// memory, or as numbers of another length: then it has to begin where its metadata says.
bool is_found_by_place(const Value& value);

/// The value whose memory this one, a chain of views of it perhaps, has.
const Value* owner_of(const Value* value);

/// The memory that the elements of a tensor of known sizes take.
int64_t bytes_of(const TensorMeta& meta);
inline int64_t bytes_of(const Value& value) {
  return bytes_of(value.meta);
}

/// Lets a value that is not found by place begin so many elements further on in its memory, and
/// the views of it with it.
void move_on(Value& value, int64_t elements);

}  // namespace ahead::native
