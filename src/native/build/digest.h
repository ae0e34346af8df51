#pragma once

#include <string>
#include <string_view>

namespace ahead::native {

/// 32 hexadecimal digits that stand for a run of bytes. Different bytes do not have the same ones
/// by chance; nothing keeps an attacker from finding some.
std::string digest(std::string_view bytes);

}  // namespace ahead::native
