"""Words for what a trainer makes of messages: its chat template and its collator."""

from __future__ import annotations

from tinyrl.course.labels.label import Label
from tinyrl.course.words import Words

TOKENS: dict[str, Label] = {
    "chat.bos": Label(
        Words("<bos>", "<bos>"),
        Words("how many times a text begins: once, twice or not at all",
              "文本开头有几个 <bos>：一个、两个或没有"),
        Words("the template writes one and the tokenizer adds another to the finished text "
              "(vllm#9519)",
              "模板写了一个，tokenizer 又给渲染好的文本加了一个（vllm#9519）"),
        Words("ids differ from the first on; of a delta one can't be sure: with RoPE a "
              "spare token may do little",
              "id 从第一个起就不同；delta 则不一定大：RoPE 下多一个 token 可能影响很小"),
        Words("compare ids first; add_special_tokens=False on rendered text",
              "先比较 id；对渲染好的文本用 add_special_tokens=False"),
    ),
    "chat.system": Label(
        Words("system prompt", "系统提示"),
        Words("what the template puts in front of a conversation without one",
              "对话自己没有系统提示时，模板在开头插入的内容"),
        Words("default system prompts of templates, taken off or probed by rule "
              "(verl#6501)",
              "模板自带的默认系统提示，被按规则去掉或探测（verl#6501）"),
        Words("ids differ from the second on, by a whole message; which tokens move is the "
              "model's own affair",
              "id 从第二个起不同，差一整条消息；哪些 token 变化取决于模型"),
        Words("one template on both sides; write the system message out",
              "两侧用同一个模板；把系统消息明确写出来"),
    ),
    "chat.generation_prompt": Label(
        Words("turn opened", "生成提示"),
        Words("whether the assistant's turn is opened for it",
              "是否已为 assistant 打开这一轮"),
        Words("add_generation_prompt set for the prompt and not for the whole, or a "
              "template that opens with <think> (trl#3522, trl#5213)",
              "给 prompt 设了 add_generation_prompt、整段却没有，或模板以 <think> 开头"
              "（trl#3522、trl#5213）"),
        Words("every token moves, as behind another role; top-1 agreement is near chance",
              "每个 token 都变，如同换了角色；top-1 一致率接近随机"),
        Words("hand over the ids that were sampled behind, not messages",
              "传递采样时实际所用的 id，而不是消息"),
    ),
    "chat.history": Label(
        Words("history", "历史轮次"),
        Words("what the template makes of the assistant's earlier turns: kept, their last "
              "word, or a number written again",
              "模板如何处理 assistant 先前的轮次：保留、只留最后一个词，或当作数字重写"),
        Words("templates that drop earlier reasoning, Qwen3's for one (verl#6854, "
              "prime-rl#1334); tool calls cleared (verl#3960), or their arguments rendered "
              "in another form (slime#2063)",
              "丢弃先前思考内容的模板，例如 Qwen3（verl#6854、prime-rl#1334）；工具调用被"
              "清空（verl#3960），或其参数以另一种形式渲染（slime#2063）"),
        Words("nothing in first turns; from the second on like other prompts",
              "第一轮没有影响；从第二轮起如同换了 prompt"),
        Words("token in, token out: append ids, never render again",
              "token 进、token 出：追加 id，不再重新渲染"),
    ),
    "collator.layout": Label(
        Words("layout", "排布"),
        Words("padding behind, padding in front, or several conversations in a row",
              "右填充、左填充，或一行打包多条对话"),
        Words("left padding of engines and of generate, packing of trainers "
              "(transformers#29029)",
              "引擎与 generate 的左填充，训练端的打包（transformers#29029）"),
        Words("nothing but rounding, where positions and mask are right",
              "position id 与 mask 正确时只有舍入误差"),
        Words("none needed", "无需处理"),
    ),
    "collator.positions": Label(
        Words("position ids", "position id"),
        Words("a token is told its place in the conversation, or its column",
              "告诉 token 的是它在对话中的位置，还是所在的列号"),
        Words("position_ids not made from the attention mask under left padding (trl#6800, "
              "trl#469)",
              "左填充下没有从 attention mask 推出 position_ids（trl#6800、trl#469）"),
        Words("nothing with RoPE, since a whole row moves; ruin with learned positions",
              "RoPE 下整行平移，没有影响；学习式位置下则面目全非"),
        Words("the running sum of the attention mask, minus 1",
              "attention mask 的累加和减 1"),
    ),
    "collator.visible": Label(
        Words("visible", "可见范围"),
        Words("a token sees its own conversation, or all that lies before it in its row",
              "token 只看到自己的对话，还是看到同一行中在它之前的全部内容"),
        Words("packing without boundaries in the attention kernel (trl#3526, "
              "prime-rl#2944)",
              "打包时注意力内核不知道样本边界（trl#3526、prime-rl#2944）"),
        Words("the first conversation of a row is right, all others are not",
              "一行中第一条对话正确，其余都不对"),
        Words("boundaries (cu_seqlens or a block mask), tested with two orders of a row",
              "传入边界（cu_seqlens 或分块 mask），并交换行内次序来测试"),
    ),
}  # fmt: skip
"""By path: "chat." and a field of `tokens.Chat`, "collator." and one of `Collator`."""
