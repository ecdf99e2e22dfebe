#include "eviction/evidence/shared_costs.h"

#include <chrono>

namespace winnow {

double SharedCosts::steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void SharedCosts::begin_user() {
  ++payer_;
  paid_ = made_ = 0;
}

void SharedCosts::use(Item& item, const std::function<void()>& make) {
  if (!making_.empty()) making_.back()->parts_.push_back(&item);
  if (!item.is_made_) {
    const double before = inside_, start = clock_();
    inside_ = 0;
    making_.push_back(&item);
    try {
      make();
    } catch (...) {
      making_.pop_back();
      inside_ = before;
      throw;
    }
    making_.pop_back();
    const double elapsed = clock_() - start;
    item.seconds_ = elapsed - inside_;
    item.is_made_ = true;
    made_ += item.seconds_;
    inside_ = before + elapsed;
  }
  pay(item);
}

void SharedCosts::pay(Item& item) {
  if (item.payer_ == payer_) return;
  item.payer_ = payer_;
  paid_ += item.seconds_;
  for (Item* part : item.parts_) pay(*part);
}

}  // namespace winnow
