#include "engine/session_file.h"

#include <algorithm>
#include <cstdint>
#include <istream>
#include <limits>
#include <ostream>
#include <span>
#include <vector>

#include "engine/checked_file.h"
#include "engine/session_options.h"
#include "winnow/error.h"

namespace winnow {
namespace {

template <class T>
void put(std::ostream& out, const T& value) {
  out.write(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <class T>
void put_array(std::ostream& out, std::span<const T> values) {
  put(out, static_cast<std::uint64_t>(values.size()));
  out.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size_bytes()));
}

void put_text(std::ostream& out, const std::string& text) { put_array(out, std::span<const char>(text)); }

// Reads with every size compared with what is left of the file, before memory is taken for it.
class Reader {
 public:
  Reader(std::istream& in, std::size_t bytes, const std::string& path) : in_(in), left_(bytes), path_(path) {}

  template <class T>
  T get() {
    T value{};
    take(sizeof(T));
    in_.read(reinterpret_cast<char*>(&value), sizeof(T));
    return value;
  }

  template <class T>
  T get_in(T min, T max) {
    const T value = get<T>();
    require(value >= min && value <= max);
    return value;
  }

  template <class T>
  std::vector<T> get_array(std::size_t most) {
    const auto n = get<std::uint64_t>();
    require(n <= most && n <= left_ / sizeof(T));
    std::vector<T> values(static_cast<std::size_t>(n));
    take(values.size() * sizeof(T));
    in_.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(T)));
    return values;
  }

  std::string get_text() {
    const auto chars = get_array<char>(1 << 20);
    for (const char c : chars) require(static_cast<unsigned char>(c) >= ' ');
    return {chars.begin(), chars.end()};
  }

  std::size_t left() const { return left_; }

  // Of `n` bytes that somebody else reads.
  void take(std::size_t n) {
    require(n <= left_);
    left_ -= n;
  }

  void require(bool is_sound) const {
    if (is_sound) return;
    throw Error(ErrorCode::kBadFile, "the session file '" + path_ + "' is damaged: prefill the prompt again");
  }

 private:
  std::istream& in_;
  std::size_t left_;
  const std::string& path_;
};

void put_options(std::ostream& out, const SessionOptions& options) {
  put(out, options.key_type);
  put(out, options.value_type);
  put(out, options.n_ctx);
  put(out, options.prefill_chunk);
  put(out, static_cast<std::int32_t>(options.decode_cut));
  put(out, options.cut_every);
  put_text(out, options.eviction.text());
  put_text(out, options.budget ? options.budget->text() : "");
}

EntryType get_entry_type(Reader& reader) {
  const auto type = reader.get<EntryType>();
  const std::span<const EntryType> known = entry_types();
  reader.require(std::find(known.begin(), known.end(), type) != known.end());
  return type;
}

SessionOptions get_options(Reader& reader) {
  SessionOptions options;
  options.key_type = get_entry_type(reader);
  options.value_type = get_entry_type(reader);
  options.n_ctx = reader.get<std::int32_t>();
  options.prefill_chunk = reader.get<std::int32_t>();
  using Cut = SessionOptions::DecodeCut;
  options.decode_cut = static_cast<Cut>(reader.get_in<std::int32_t>(0, static_cast<std::int32_t>(Cut::kOwn)));
  options.cut_every = reader.get<std::int32_t>();
  options.eviction = EvictionOptions::parse(reader.get_text());
  if (const std::string budget = reader.get_text(); !budget.empty()) options.budget = Budget::parse(budget);
  return options;
}

void put_promise(std::ostream& out, const std::optional<LossPromise>& promise) {
  put(out, static_cast<std::uint8_t>(promise.has_value()));
  if (!promise) return;
  put(out, promise->asked);
  put(out, promise->taken.amount);
  put(out, promise->expected);
  put(out, promise->n_tokens);
  std::vector<double> tried;
  for (const LossPromise::Trial& trial : promise->tried) tried.insert(tried.end(), {trial.budget.amount, trial.kl});
  put_array(out, std::span<const double>(tried));
}

std::optional<LossPromise> get_promise(Reader& reader) {
  if (reader.get_in<std::uint8_t>(0, 1) == 0) return std::nullopt;
  const auto part = [&](double amount) {
    reader.require(amount > 0 && amount <= 1);
    return Budget{.unit = Budget::Unit::kByteFraction, .amount = amount};
  };
  constexpr double kMostNats = 1e9;
  LossPromise promise;
  promise.asked = reader.get_in<double>(0, kMostNats);
  promise.taken = part(reader.get<double>());
  promise.expected = reader.get_in<double>(-kMostNats, kMostNats);
  promise.n_tokens = reader.get_in<std::int32_t>(0, std::numeric_limits<std::int32_t>::max());
  const auto tried = reader.get_array<double>(1 << 10);
  reader.require(tried.size() % 2 == 0);
  for (std::size_t i = 0; i < tried.size(); i += 2) {
    reader.require(tried[i + 1] >= -kMostNats && tried[i + 1] <= kMostNats);
    promise.tried.push_back({part(tried[i]), tried[i + 1]});
  }
  return promise;
}

// The positions of the tokens that are stored must be those of tokens that were fed.
bool has_only_positions_below(const RaggedCache& cache, std::int32_t n_tokens) {
  for (int l = 0; l < cache.shape().n_layer(); ++l) {
    for (int h = 0; h < cache.shape().layer(l).n_kv_head; ++h) {
      for (const kernels::EntryRun& run : cache.entries(l, h).runs) {
        if (run.positions[run.n_entries - 1] >= n_tokens) return false;
      }
    }
  }
  return true;
}

// What a file says of its options is as little to be believed as the rest of it.
SessionOptions checked_options(const SessionOptions& options, const Model::Impl& model, const std::string& path) {
  try {
    return checked_session_options(options, model);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) throw;
    throw Error(ErrorCode::kBadFile, "the session file '" + path + "' has options that no session of this model has (" +
                                         error.what() + "): prefill the prompt again");
  }
}

}  // namespace

void save_session(const Session::Impl& session, const std::string& path) {
  CheckedFileWriter file(path);
  std::ostream& out = file.body();
  put(out, session.model().info.fingerprint);
  put_options(out, session.options);
  put(out, session.statistics.prompt_tokens);
  put(out, session.statistics.decoded_tokens);
  put_promise(out, session.statistics.promise);
  put(out, session.total);
  put(out, session.decoded_since_cut);
  put_array(out, std::span<const std::int32_t>(session.head_budgets));
  put_array(out, std::span<const Token>(session.tokens));
  put_array(out, std::span<const float>(session.logits));
  for (int l = 0; l < session.cache.shape().n_layer(); ++l) {
    if (session.recurrent.is_recurrent(l)) put_array(out, session.recurrent.layer(l));
  }
  session.evidence.write(out);
  session.cache.write(out);
  session.scores.write(out);
  file.commit();
}

std::unique_ptr<Session::Impl> load_session(std::shared_ptr<Engine> engine, const std::string& path) {
  CheckedFileReader file(path);
  Reader reader(file.body(), file.body_bytes(), path);
  const Model::Impl& model = engine->impl().model->impl();
  if (reader.get<std::uint64_t>() != model.info.fingerprint) {
    throw Error(ErrorCode::kBadFile,
                "the session file '" + path + "' was saved with another model than '" + model.file.path() + "'");
  }
  const SessionOptions options = checked_options(get_options(reader), model, path);
  // A session takes as much for its queries as the file has to hold of them.
  const std::uint64_t evidence_bytes = QueryEvidence::written_bytes(evidence_needs(options), model.spec);
  reader.require(evidence_bytes <= reader.left());

  auto session = std::make_unique<Session::Impl>(std::move(engine), options);
  constexpr std::int64_t kMost = std::int64_t{1} << 53;
  session->statistics.prompt_tokens = reader.get_in<std::int64_t>(0, kMost);
  session->statistics.decoded_tokens = reader.get_in<std::int64_t>(0, kMost);
  if (const std::optional<LossPromise> promise = get_promise(reader)) {
    reader.require(options.budget && options.budget->unit == Budget::Unit::kLoss);
    session->take_promise(*promise);
  }
  session->total = reader.get_in<std::int64_t>(0, kMost);
  session->decoded_since_cut = reader.get_in<std::int32_t>(0, std::numeric_limits<std::int32_t>::max());
  const auto n_heads = static_cast<std::size_t>(session->cache.shape().n_cut_heads());
  session->head_budgets = reader.get_array<std::int32_t>(n_heads);
  reader.require(session->head_budgets.empty() || session->head_budgets.size() == n_heads);
  session->tokens = reader.get_array<Token>(static_cast<std::size_t>(options.n_ctx));
  for (const std::int32_t n : session->head_budgets) reader.require(n >= 0 && n <= session->n_tokens());
  for (const Token token : session->tokens) reader.require(token >= 0 && token < model.spec.n_vocab);
  session->logits = reader.get_array<float>(static_cast<std::size_t>(model.spec.n_vocab));
  const bool is_fed = !session->tokens.empty();
  reader.require(session->logits.size() == (is_fed ? static_cast<std::size_t>(model.spec.n_vocab) : 0));
  for (int l = 0; l < model.spec.n_layer(); ++l) {
    if (!session->recurrent.is_recurrent(l)) continue;
    const std::size_t size = session->recurrent.layer_size(l);
    const std::vector<float> values = reader.get_array<float>(size);
    reader.require(values.size() == (is_fed ? size : 0));
    session->recurrent.restore(l, values);
  }
  reader.take(static_cast<std::size_t>(evidence_bytes));
  reader.require(session->evidence.read(file.body()));
  session->cache.restore(file.body());
  session->scores.read(file.body(), session->cache);
  reader.require(file.body().peek() == std::istream::traits_type::eof());
  reader.require(has_only_positions_below(session->cache, session->n_tokens()));
  session->cache.settle();
  return session;
}

}  // namespace winnow
