#include "ahead/errors.h"

namespace ahead {

Error::Error(std::string_view stage, const std::string& message)
    : c10::Error("[" + std::string(stage) + "] " + message, /*backtrace=*/nullptr) {}

}  // namespace ahead
