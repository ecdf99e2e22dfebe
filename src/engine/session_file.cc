#include "engine/session_file.h"

#include <cstdint>
#include <exception>
#include <limits>
#include <optional>
#include <span>
#include <sstream>
#include <utility>
#include <vector>

#include "engine/checked_file.h"
#include "engine/ranks/pieces.h"
#include "engine/session_options.h"
#include "engine/stored_numbers.h"
#include "engine/stored_options.h"
#include "model/balanced_pairs.h"
#include "winnow/error.h"

// A session file holds the model's fingerprints, the data that all ranks have alike, and a part (engine/ranks/pieces.h)
// for each layer. The file is rank 0's: other ranks send it the parts of their layers, and get them from it.

namespace winnow {
namespace {

constexpr std::size_t kMostCommonBytes = std::size_t{1} << 30;

std::string damaged(const std::string& path) {
  return "the session file '" + path + "' is damaged: prefill the prompt again";
}

// Returns the model's fingerprints as a file of that version has them: earlier ones had only the first.
std::uint64_t fingerprint_in_file(const Model::Impl& model, std::uint32_t version) {
  constexpr std::uint32_t kFirstWithMetadata = 8;
  return model.info.fingerprint ^ (version >= kFirstWithMetadata ? model.info.metadata_fingerprint : 0);
}

// Returns what names the model in a file of that version. Where keys and queries have factors (model/balanced_pairs.h),
// it is not the fingerprints alone: files of earlier builds have the keys without them.
std::uint64_t name_in_file(const Model::Impl& model, std::uint32_t version) {
  constexpr std::uint64_t kBalanced = 0x6465636E616C6162;
  for (std::size_t l = 0; l < model.spec.layers.size(); ++l) {
    if (has_balanced_pairs(model.spec.layers[l], model.weights.layers[l])) {
      return fingerprint_in_file(model, version) ^ kBalanced;
    }
  }
  return fingerprint_in_file(model, version);
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

std::optional<LossPromise> get_promise(NumberReader& reader) {
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

// Returns whether files before version 8 have as many query rows of such a session as were decoded between cuts,
// instead of the window's.
bool saved_other_rows(const SessionOptions& options) {
  return options.decode_cut != SessionOptions::DecodeCut::kKeep && evidence_needs(options).all_queries;
}

// Returns the file's options, checked like the rest of the file: it is not trusted. Throws Error(kBadFile).
SessionOptions checked_options(const SessionOptions& options, const Model::Impl& model, const std::string& path) {
  try {
    return checked_session_options(options, model);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) throw;
    throw Error(ErrorCode::kBadFile, "the session file '" + path + "' has options that do not suit this model (" +
                                         error.what() + "): prefill the prompt again");
  }
}

// Returns the bytes of the data that all ranks have alike.
std::string common_bytes(const Session::Impl& session) {
  std::ostringstream out;
  out.exceptions(std::ios::badbit);  // otherwise data without memory would be missing silently
  put_options(out, session.options);
  put(out, session.statistics.prompt_tokens);
  put(out, session.statistics.decoded_tokens);
  put_promise(out, session.statistics.promise);
  put(out, session.total);
  put(out, session.decoded_since_cut);
  put_array(out, std::span<const std::int32_t>(session.head_budgets));
  put_array(out, std::span<const Token>(session.tokens));
  put_array(out, std::span<const float>(session.logits));
  return std::move(out).str();
}

// Returns a session with this data, but without the entries, states and queries of its layers.
std::unique_ptr<Session::Impl> begun_session(std::shared_ptr<Engine> engine, const std::string& common,
                                             const std::string& path) {
  const Model::Impl& model = engine->impl().model->impl();
  std::istringstream in(common);
  NumberReader reader(in, common.size(), damaged(path));
  const SessionOptions options = checked_options(get_options(reader), model, path);
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
  const auto n_heads = static_cast<std::size_t>(session->shape.n_cut_heads());
  session->head_budgets = reader.get_array<std::int32_t>(n_heads);
  reader.require(session->head_budgets.empty() || session->head_budgets.size() == n_heads);
  session->tokens = reader.get_array<Token>(static_cast<std::size_t>(options.n_ctx));
  for (const std::int32_t n : session->head_budgets) reader.require(n >= 0 && n <= session->n_tokens());
  for (const Token token : session->tokens) reader.require(token >= 0 && token < model.spec.n_vocab);
  const auto n_logits = static_cast<std::size_t>(model.spec.n_vocab);
  session->logits = reader.get_array<float>(n_logits);
  // A session has none before its first token, after truncate(), and after a prompt that was read for hidden states.
  reader.require(session->logits.empty() || (session->logits.size() == n_logits && !session->tokens.empty()));
  reader.require(reader.left() == 0);
  return session;
}

void write_layer(const Session::Impl& session, int layer, std::ostream& out) {
  if (session.recurrent.is_recurrent(layer)) put_array(out, session.recurrent.layer(layer));
  session.evidence.write(out, layer);
  session.cache.write(out, layer);
  session.scores.write(out, layer);
}

// Returns whether all stored entries have positions of tokens that were fed.
bool has_only_positions_below(const RaggedCache& cache, int layer, std::int32_t n_tokens) {
  for (int h = 0; h < cache.shape().layer(layer).n_kv_head; ++h) {
    for (const kernels::EntryRun& run : cache.entries(layer, h).runs) {
      if (run.positions[run.n_entries - 1] >= n_tokens) return false;
    }
  }
  return true;
}

void read_layer(Session::Impl& session, int layer, std::istream& in, const std::string& path) {
  NumberReader reader(in, std::numeric_limits<std::size_t>::max(), damaged(path));
  if (session.recurrent.is_recurrent(layer)) {
    const std::size_t size = session.tokens.empty() ? 0 : session.recurrent.layer_size(layer);
    const std::vector<float> values = reader.get_array<float>(size);
    reader.require(values.size() == size);
    session.recurrent.restore(layer, values);
  }
  reader.require(session.evidence.read(in, layer));
  session.cache.restore(in, layer);
  session.scores.read(in, layer, session.cache);
  reader.require(in.peek() == std::istream::traits_type::eof());
  reader.require(has_only_positions_below(session.cache, layer, session.n_tokens()));
}

// Keeps the first error of work whose parts must all be gone through, since other ranks take part in them.
class FirstError {
 public:
  // Runs `body` unless there was an error before.
  template <class Body>
  void unless_failed(const Body& body) {
    if (error_) return;
    try {
      body();
    } catch (const PipelineError&) {
      throw;
    } catch (...) {
      if (!error_) error_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::exception_ptr error_;
};

// Rank 0's open file, with the data that all ranks have alike. Throws Error.
struct OpenedFile {
  OpenedFile(const Model::Impl& model, const std::string& path)
      : file(path), reader(file.body(), file.body_bytes(), damaged(path)) {
    if (const auto name = reader.get<std::uint64_t>(); name != name_in_file(model, file.version())) {
      if (name == fingerprint_in_file(model, file.version())) {
        throw Error(ErrorCode::kBadFile, "the session file '" + path +
                                             "' was saved by an earlier version of winnow, which stored the keys of "
                                             "this model at another scale: prefill the prompt again");
      }
      throw Error(ErrorCode::kBadFile, "the session file '" + path + "' was saved with a different model from '" +
                                           model.file.path() + "', or with other metadata: load it with its own model");
    }
    const std::vector<char> bytes = reader.get_array<char>(kMostCommonBytes);
    common.assign(bytes.begin(), bytes.end());
    // A session reserves memory for queries by its options: the file must hold as much.
    std::istringstream in(common);
    NumberReader first(in, common.size(), damaged(path));
    const SessionOptions options = checked_options(get_options(first), model, path);
    if (file.version() < kSessionFileVersion && saved_other_rows(options)) {
      throw Error(ErrorCode::kBadFile,
                  "the session file '" + path +
                      "' was saved by an earlier version of winnow, which kept other query rows for '" +
                      options.eviction.method + "' with cuts while decoding: prefill the prompt again");
    }
    reader.require(QueryEvidence::written_bytes(evidence_needs(options), model.spec) <= reader.left());
  }

  CheckedFileReader file;
  NumberReader reader;
  std::string common;
};

}  // namespace

void save_session(const Session::Impl& session, const std::string& path) {
  const Pipeline& pipeline = session.engine_impl().pipeline;
  std::optional<CheckedFileWriter> file;  // rank 0's
  pipeline.all_or_none([&] {
    if (!pipeline.is_first()) return;
    file.emplace(path);
    put(file->body(), name_in_file(session.model(), kSessionFileVersion));
    put_text(file->body(), common_bytes(session));
  });
  FirstError error;
  const PieceSink to_file = [&](std::span<const char> piece) {
    error.unless_failed([&] { put_array(file->body(), piece); });
  };
  const PieceSink to_first_rank = [&](std::span<const char> piece) { pipeline.give_piece(0, piece); };
  pipeline.together([&] {
    PieceWriter own(pipeline.is_first() ? to_file : to_first_rank);
    for (int l = 0; l < session.shape.n_layer(); ++l) {
      if (pipeline.holds(l)) {
        write_layer(session, l, own.stream());
        own.end_part();
      } else if (pipeline.is_first()) {
        for (bool more = true; more;) {
          const std::vector<char> piece = pipeline.take_piece(pipeline.holder(l));
          to_file(piece);
          more = !piece.empty();
        }
      }
    }
  });
  pipeline.all_or_none([&] {
    error.rethrow();
    if (file) file->commit();
  });
}

std::unique_ptr<Session::Impl> load_session(std::shared_ptr<Engine> engine, const std::string& path) {
  const Pipeline& pipeline = engine->impl().pipeline;
  const Model::Impl& model = engine->impl().model->impl();
  std::optional<OpenedFile> file;  // rank 0's
  pipeline.all_or_none([&] {
    if (pipeline.is_first()) file.emplace(model, path);
  });
  const std::string common = pipeline.of_first(file ? file->common : std::string());
  std::unique_ptr<Session::Impl> session;
  pipeline.all_or_none([&] { session = begun_session(std::move(engine), common, path); });

  FirstError error;
  const PieceSource from_file = [&] {
    std::vector<char> piece;
    error.unless_failed([&] { piece = file->reader.get_array<char>(kPieceBytes); });
    return piece;
  };
  const PieceSource from_first_rank = [&] { return pipeline.take_piece(0); };
  pipeline.together([&] {
    PieceReader own(pipeline.is_first() ? from_file : from_first_rank);
    for (int l = 0; l < session->shape.n_layer(); ++l) {
      if (pipeline.holds(l)) {
        error.unless_failed([&] { read_layer(*session, l, own.stream(), path); });
        own.end_part();
      } else if (pipeline.is_first()) {
        for (bool more = true; more;) {
          const std::vector<char> piece = from_file();
          pipeline.give_piece(pipeline.holder(l), piece);
          more = !piece.empty();
        }
      }
    }
  });
  pipeline.all_or_none([&] {
    error.rethrow();
    if (file) file->reader.require(file->reader.left() == 0);
  });
  session->cache.settle();
  pipeline.together([&] { session->gather_cut_entries(); });
  return session;
}

}  // namespace winnow
