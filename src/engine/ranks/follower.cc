// A rank that follows the first one (EngineOptions::is_led) repeats the calls that it is sent.
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <utility>

#include "engine/engine_impl.h"
#include "engine/ranks/leader.h"
#include "engine/steps_in_turn.h"
#include "engine/stored_numbers.h"
#include "engine/stored_options.h"
#include "winnow/error.h"

namespace winnow {
namespace {

// Holds the sessions and prefills of a rank that follows, and repeats calls on them.
class Follower {
 public:
  explicit Follower(std::shared_ptr<Engine> engine) : engine_(std::move(engine)) {}

  // Repeats a call. Returns false once there are no more. Throws Error(kBadFile) for an unknown one.
  bool repeat(const std::string& message) {
    std::istringstream in(message);
    NumberReader reader(in, message.size(),
                        "rank 0 sent a call that this rank does not know: start the same winnow on all ranks");
    for (const std::uint64_t number : reader.get_array<std::uint64_t>(message.size())) {
      prefills_.erase(number);
      sessions_.erase(number);
    }
    const auto call = reader.get<LedCall>();
    if (call == LedCall::kEnd) return false;
    if (call == LedCall::kRest) {
      engine_->impl().rest();
    } else if (call == LedCall::kMemory) {
      static_cast<void>(engine_->memory_of_ranks());
    } else if (call == LedCall::kFinishStep) {
      finish_step(*engine_);
    } else if (call == LedCall::kPrefill || call == LedCall::kAppend || call == LedCall::kDecode ||
               call == LedCall::kStartStep) {
      feed(call, reader, message.size());
    } else if (call == LedCall::kSlice) {
      step(reader.get<std::uint64_t>());
    } else {
      repeat_of_one(call, reader);
    }
    return true;
  }

 private:
  Session& session(std::uint64_t number) { return sessions_.at(number); }
  static std::string path_in(NumberReader& reader) {
    const std::vector<char> path = reader.get_array<char>(reader.left());
    return {path.begin(), path.end()};
  }

  void repeat_of_one(LedCall call, NumberReader& reader) {
    const auto number = reader.get<std::uint64_t>();
    switch (call) {
      case LedCall::kOpen: {
        SessionOptions options = get_options(reader);
        if (options.budget) options.budget->amount = reader.get<double>();  // its text may be rounded
        sessions_.emplace(number, engine_->open(options));
        return;
      }
      case LedCall::kLoad:
        return together([&] { sessions_.emplace(number, engine_->load_session(path_in(reader))); });
      case LedCall::kSave:
        return together([&] { session(number).save(path_in(reader)); });
      case LedCall::kFork:
        sessions_.emplace(reader.get<std::uint64_t>(), session(number).fork());
        return;
      case LedCall::kTruncate:
        return session(number).truncate(reader.get<std::int32_t>());
      case LedCall::kClear:
        return session(number).clear();
      case LedCall::kStatistics:
        static_cast<void>(session(number).statistics());
        return;
      case LedCall::kPositions: {
        const auto layer = reader.get<std::int32_t>(), kv_head = reader.get<std::int32_t>();
        static_cast<void>(session(number).positions(layer, kv_head));
        return;
      }
      default:
        reader.require(false);
    }
  }

  void feed(LedCall call, NumberReader& reader, std::size_t most) {
    std::vector<Session*> fed;
    for (const std::uint64_t number : reader.get_array<std::uint64_t>(most)) fed.push_back(&session(number));
    const std::vector<Token> tokens = reader.get_array<Token>(most);
    if (call == LedCall::kDecode) return engine_->decode(fed, tokens);
    if (call == LedCall::kStartStep) return start_step(*engine_, fed, tokens);
    PrefillOptions callbacks;  // rank 0's callbacks need what all ranks compute
    if (reader.get<std::uint8_t>() != 0) callbacks.on_logits = [](std::int32_t, std::span<const float>) {};
    if (reader.get<std::uint8_t>() != 0) callbacks.on_hidden = [](std::int32_t, std::span<const float>) {};
    const auto number = reader.get<std::uint64_t>();
    prefills_.emplace(number, call == LedCall::kPrefill ? engine_->start_prefill(fed, tokens, callbacks)
                                                        : engine_->start_append(*fed.at(0), tokens, callbacks));
    step(number);
  }

  void step(std::uint64_t prefill) {
    together([&] {
      if (!prefills_.at(prefill).step()) prefills_.erase(prefill);
    });
  }

  // Runs `body` and drops the errors that all ranks throw together: rank 0 reports them.
  template <class Body>
  void together(const Body& body) {
    try {
      body();
    } catch (const PipelineError&) {
      throw;
    } catch (const Error&) {
    }
  }

  const std::shared_ptr<Engine> engine_;
  std::map<std::uint64_t, Session> sessions_;
  std::map<std::uint64_t, Prefill> prefills_;  // under way; destroyed before their sessions
};

}  // namespace

void Engine::follow() {
  const Pipeline& pipeline = impl_->pipeline;
  if (!impl_->options.is_led || pipeline.n_ranks() == 1 || pipeline.is_first()) {
    throw Error(ErrorCode::kInvalidArgument,
                "this rank has nothing to follow: call follow() on ranks after the first, with EngineOptions::is_led");
  }
  Follower follower(shared_from_this());
  // An error that rank 0 does not have leaves this rank without what later calls need, so it ends all ranks.
  while (pipeline.together([&] { return follower.repeat(pipeline.hear_call()); })) {
  }
}

}  // namespace winnow
