"""One set of float32 weights for both sides: the dequantised tensors of a GGUF file, as a file for winnow and as a
transformers model."""
import gguf
import torch
from transformers import LlamaConfig, LlamaForCausalLM

NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
GLOBAL_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}


def read(path):
    """Returns (the reader, {name: float32 array in row-major order})."""
    reader = gguf.GGUFReader(path)
    return reader, {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype("float32") for t in reader.tensors}


def write_f32(reader, tensors, path):
    """Writes the same model with float32 tensors."""
    architecture = reader.get_field("general.architecture").contents()
    writer = gguf.GGUFWriter(path, architecture)
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        value = 0 if field.name == "general.file_type" else field.contents()
        writer.add_key_value(field.name, value, field.types[0], field.types[-1] if len(field.types) > 1 else None)
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def unpermute(weight, n_head):
    """Undoes llama.cpp's converter, which interleaves the halves of each head's rows of Q and K; transformers rotates
    halves."""
    rows, columns = weight.shape
    return weight.reshape(n_head, rows // n_head // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def transformers_model(reader, tensors):
    def field(name):
        return reader.get_field(name).contents()

    if field("general.architecture") != "llama":
        raise SystemExit("error: only files of the architecture llama are understood here")
    n_head = field("llama.attention.head_count")
    n_kv_head = field("llama.attention.head_count_kv")
    config = LlamaConfig(
        vocab_size=tensors["token_embd.weight"].shape[0],
        hidden_size=field("llama.embedding_length"),
        intermediate_size=field("llama.feed_forward_length"),
        num_hidden_layers=field("llama.block_count"),
        num_attention_heads=n_head,
        num_key_value_heads=n_kv_head,
        head_dim=field("llama.rope.dimension_count"),
        max_position_embeddings=field("llama.context_length"),
        rms_norm_eps=field("llama.attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": field("llama.rope.freq_base")},
        tie_word_embeddings="output.weight" not in tensors,
        attn_implementation="sdpa",
        dtype=torch.float32,
    )
    state = {}
    for name, tensor in tensors.items():
        if name in GLOBAL_NAMES:
            state[GLOBAL_NAMES[name]] = torch.from_numpy(tensor)
            continue
        _, layer, part, suffix = name.split(".")
        if part in ("attn_q", "attn_k"):
            tensor = unpermute(tensor, n_head if part == "attn_q" else n_kv_head)
        state[f"model.layers.{layer}.{NAMES[part]}.{suffix}"] = torch.from_numpy(tensor.copy())
    model = LlamaForCausalLM(config)
    missing, unexpected = model.load_state_dict(state, strict=False)
    missing = [name for name in missing if name != "lm_head.weight" or not config.tie_word_embeddings]
    if missing or unexpected:
        raise SystemExit(f"error: tensors do not match the model: missing {missing}, unexpected {unexpected}")
    model.tie_weights()
    return model.float().eval()
