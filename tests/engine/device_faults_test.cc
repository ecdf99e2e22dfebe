// A device without memory, and one that is lost, at every point of a session's calls: what fails leaves the session as
// it was, and the next try gives the same bits as without a fault.
#include <ggml.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "device/host_device.h"
#include "device/host_fault.h"
#include "engine/device/device_graph.h"
#include "engine/engine_test_support.h"
#include "sanitizers.h"
#include "winnow/log_softmax.h"

namespace winnow::test {
namespace {

using device::HostFault;

using Change = std::function<void(Session&)>;

class DeviceFaultsTest : public testing::TestWithParam<std::string> {
 protected:
  // Returns a session of an engine of its own, since an engine keeps the memory that it has once taken.
  Session open() const {
    EngineOptions engine_options{.n_threads = 1, .n_batch = 48};
    engine_options.device = "host";
    const std::shared_ptr<Engine> engine = Engine::create(model_, engine_options);
    return engine->open(options());
  }
  static bool has_codes() { return GetParam() == "auto"; }
  static SessionOptions options() {
    if (GetParam() == "full") return for_device(full_options());
    if (!has_codes()) return for_device(evicting_options(GetParam(), "50%"));
    SessionOptions options;
    options.eviction = EvictionOptions::parse("auto");
    options.budget = Budget::parse("25%bytes");
    return options;
  }
  Session read() const {
    Session session = open();
    session.prefill(random_tokens(64, 300, 1));
    return session;
  }

  void expect_all_or_nothing(HostFault::Kind kind, ErrorCode code, const std::function<Session()>& before,
                             const Change& change) const {
    Session whole = before();
    const std::string old_file = file_of(whole, directory_);
    const SessionState old_state = state_of(whole);
    change(whole);
    const std::string expected = file_of(whole, directory_);
    std::int64_t n_thrown = 0;
    for (std::int64_t n = 1;; n = next(kind, n)) {
      Session session = before();
      const std::size_t in_use = session.impl().engine->memory().kv_bytes_in_use;
      bool has_thrown = false;
      {
        const HostFault fault(kind, n);
        try {
          change(session);
        } catch (const Error& error) {
          has_thrown = true;
          EXPECT_EQ(error.code(), code) << n << ": " << error.what();
        }
        if (!fault.has_happened()) break;
      }
      if (!has_thrown) {  // pages come from smaller blocks
        ASSERT_TRUE(has_codes() || kind == HostFault::Kind::kOutOfMemory) << n;
        // Pages for whose codes there is no memory stay floats until the next call.
        ASSERT_TRUE(has_codes() || file_of(session, directory_) == expected) << n;
        continue;
      }
      ++n_thrown;
      if (has_codes()) {  // the last page of codes may have become one of floats, from which codes are made anew
        ASSERT_EQ(state_of(session).tokens, old_state.tokens) << n;
        ASSERT_EQ(state_of(session).positions, old_state.positions) << n;
        change(session);
        ASSERT_EQ(state_of(session), state_of(whole)) << n;
        ASSERT_LT(kl_divergence(logits_of(whole), logits_of(session)), 1e-3) << n;
        continue;
      }
      ASSERT_EQ(state_of(session), old_state) << n;
      ASSERT_EQ(session.impl().engine->memory().kv_bytes_in_use, in_use) << n;
      ASSERT_TRUE(file_of(session, directory_) == old_file) << n;
      change(session);
      ASSERT_TRUE(file_of(session, directory_) == expected) << "the try after " << n;
    }
    EXPECT_GT(n_thrown, 0);
  }

  // Returns the place of the next fault. A call has hundreds of pieces of work, of which the first are of most kinds.
  static std::int64_t next(HostFault::Kind kind, std::int64_t n) {
    const int fraction = kHasSanitizers ? 1 : has_codes() ? 3 : 8;
    return kind == HostFault::Kind::kLost ? n + 1 + n / fraction : n + (kHasSanitizers || has_codes() ? 3 : 1);
  }

  void expect_all_or_nothing(const std::function<Session()>& before, const Change& change) const {
    expect_all_or_nothing(HostFault::Kind::kOutOfMemory, ErrorCode::kOutOfMemory, before, change);
    expect_all_or_nothing(HostFault::Kind::kLost, ErrorCode::kInternal, before, change);
  }

  TemporaryDirectory directory_;
  const std::shared_ptr<const Model> model_ = tiny_model({.n_layer = 2, .n_head = 2, .n_kv_head = 1, .n_ff = 64});
};

TEST_P(DeviceFaultsTest, Prefill) {
  expect_all_or_nothing([&] { return open(); }, [](Session& session) { session.prefill(random_tokens(64, 300, 1)); });
}

TEST_P(DeviceFaultsTest, Append) {
  expect_all_or_nothing([&] { return read(); }, [](Session& session) { session.append(random_tokens(30, 300, 2)); });
}

TEST_P(DeviceFaultsTest, Decode) {
  const auto nearly_full = [&] {  // the step opens pages
    Session session = read();
    session.append(random_tokens(13, 300, 3));
    return session;
  };
  expect_all_or_nothing(nearly_full, [](Session& session) { session.decode(5); });
}

TEST_P(DeviceFaultsTest, SessionsOfALostDeviceEnd) {
  Session session = read(), other = open();
  const HostFault fault(HostFault::Kind::kLost, 1);
  expect_error(ErrorCode::kInternal, [&] { session.decode(5); });
  expect_error(ErrorCode::kInternal, [&] { other.prefill(random_tokens(64, 300, 1)); });
  session.clear();
  session = std::move(other);  // whose engine ends, too
  EXPECT_EQ(session.n_tokens(), 0);
}

// Methods that ask a device for different things.
std::vector<std::string> methods() {
  if (kHasSanitizers) return {"critical-ada-snapkv", "auto"};
  return {"full", "critical-ada-snapkv", "h2o", "kvzip", "auto"};
}

INSTANTIATE_TEST_SUITE_P(Methods, DeviceFaultsTest, testing::ValuesIn(methods()), method_test_name);

class DeviceCutFaultsTest : public DeviceFaultsTest {};

// A turn whose cut fails has been fed; the next one is cut as ever.
TEST_P(DeviceCutFaultsTest, ALaterTurnIsFedOrNot) {
  const std::vector<Token> turn = random_tokens(30, 300, 2), later = random_tokens(10, 300, 3);
  Session fed = read();
  const SessionState old_state = state_of(fed);
  fed.append(turn);
  const SessionState fed_state = state_of(fed);
  std::size_t n_fed = 0;
  for (const auto kind : {HostFault::Kind::kOutOfMemory, HostFault::Kind::kLost}) {
    for (std::int64_t n = 1;; n = next(kind, n)) {
      Session session = read();
      bool has_thrown = false;
      {
        const HostFault fault(kind, n);
        try {
          session.prefill(turn);
        } catch (const Error&) {
          has_thrown = true;
        }
        if (!fault.has_happened()) break;
      }
      if (!has_thrown) continue;
      const bool is_fed = session.n_tokens() != old_state.prompt_tokens;
      n_fed += is_fed ? 1 : 0;
      ASSERT_EQ(state_of(session).positions, is_fed ? fed_state.positions : old_state.positions) << n;
      ASSERT_EQ(state_of(session).tokens, is_fed ? fed_state.tokens : old_state.tokens) << n;
      if (!is_fed) session.append(turn);
      session.prefill(later);
      Session expected = read();
      expected.append(turn);
      expected.prefill(later);
      ASSERT_EQ(kept_positions(session), kept_positions(expected)) << n;
      ASSERT_EQ(logits_of(session), logits_of(expected)) << n;
    }
  }
  EXPECT_GT(n_fed, 0U);
}

TEST(DeviceGraphTest, AGraphThatHasNoRoomIsFollowedByASmallerOne) {
  if (kHasSanitizers) GTEST_SKIP() << "they end the process when it asks for so much memory";
  const std::shared_ptr<device::Device> device = device::open_host_device(1);
  const device::Buffer numbers = device->allocate(sizeof(float));
  const float two = 2;
  device->upload(numbers.data(), &two, sizeof(two));
  DeviceGraph graph(*device, 4);
  const auto doubled = [&](std::int64_t n) {
    graph.reset();
    ggml_tensor* const y = ggml_scale(graph.context(), graph.external(GGML_TYPE_F32, n, 1, numbers.data()), 2.0F);
    graph.expand(y);
    graph.allocate();
    return y;
  };
  for (int round = 0; round < 2; ++round) {
    expect_error(ErrorCode::kOutOfMemory, [&] { doubled(std::int64_t{1} << 48); });  // more bytes than addresses
    const ggml_tensor* const y = doubled(1);
    graph.run();
    float four = 0;
    device->download(&four, y->data, sizeof(four));
    EXPECT_EQ(four, 4);
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, DeviceCutFaultsTest, testing::Values("critical-ada-snapkv"), method_test_name);

}  // namespace
}  // namespace winnow::test
