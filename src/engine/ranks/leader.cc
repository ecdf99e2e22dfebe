#include "engine/ranks/leader.h"

#include <span>
#include <sstream>
#include <utility>

#include "engine/stored_numbers.h"

namespace winnow {

void Leader::drop(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  dropped_.push_back(number);
}

void Leader::tell(LedCall call, const std::function<void(std::ostream&)>& put_fields) {
  if (!leads_) return;
  std::ostringstream out;
  out.exceptions(std::ios::badbit);  // otherwise data without memory would be missing silently
  {
    const std::lock_guard lock(mutex_);
    put_array(out, std::span<const std::uint64_t>(dropped_));
    dropped_.clear();
  }
  put(out, call);
  if (put_fields) put_fields(out);
  pipeline_.tell_call(std::move(out).str());
}

}  // namespace winnow
