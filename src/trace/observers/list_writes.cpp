#include "trace/observers/list_writes.h"

#include "ir/signature.h"

namespace ahead::tracing {

void ListWrites::before(const TracedCall& call) {
  for (size_t index : written_arguments(*call.op.op)) {
    if (!call.argument(index).isTensorList()) continue;
    for_each_traced(call.argument(index),
                    [&](const at::Tensor& tensor) { ++counts_[tensor.unsafeGetTensorImpl()]; });
  }
}

}  // namespace ahead::tracing
