// The language of the page, and its texts in Chinese and Japanese by their English text. Texts of the
// workshop come from the workshop; legends and causes come from diagram.js; sentences of results come from
// results.js.

import { speak } from "./diagram.js";
import { keep, kept } from "./kept.js";
import { translateResult } from "./results.js";

export const languages = { en: "English", zh: "中文", ja: "日本語" };

// Each entry has the English text, the Chinese text and the Japanese text.
const entries = [
  ["Start", "开始", "開始"],
  ["Live", "实况", "ライブ"],
  ["Matrix", "矩阵", "マトリックス"],
  ["Schedules", "调度", "スケジュール"],
  ["Workshop", "练习", "演習"],
  ["Choose", "选锁", "ロック選び"],
  ["Send drivers to orders, strike a holder with a fault, and watch. Or be the drivers yourself.", "派司机去抢单，用故障打击持锁者，然后观察。也可以自己当司机。", "ドライバーを注文に送り、ロックの持ち主に障害を起こして観察します。自分でドライバーにもなれます。"],
  ["Every strategy under every fault: which combinations grab an order twice, and which leave it stuck.", "每种策略在每种故障下：哪些会重复抢单，哪些让订单卡住。", "すべての戦略とすべての障害：どの組み合わせで二重取得になり、どれで注文が止まるか。"],
  ["Search all orders of steps for the shortest one that breaks a lock.", "搜索所有步骤顺序，找出破坏锁的最短一个。", "すべての手順の並びから、ロックを破る最短のものを探します。"],
  ["Twelve exercises: predict, run, look, and answer.", "十二个练习：预测、运行、观察、回答。", "十二の演習：予測し、実行し、観察し、答えます。"],
  ["Answer questions about your service, and get a lock that fits.", "回答关于你的服务的问题，得到合适的锁。", "サービスについての質問に答えると、合うロックが分かります。"],
  ["Many drivers grab the same order, and only one may win. Grab Lab runs two instances of a service that share a lock, breaks something at the worst moment, and counts the orders that were grabbed twice.",
    "许多司机抢同一个订单，只能有一个赢。Grab Lab 运行共用一把锁的两个服务实例，在最糟的时刻制造故障，并统计被抢两次的订单。",
    "多くのドライバーが同じ注文を取り合い、勝てるのは一人だけです。Grab Lab は一つのロックを共有する二つのインスタンスを動かし、最悪の瞬間に障害を起こし、二度取られた注文を数えます。"],
  ["Show me the bug", "演示这个错误", "バグを見る"],
  ["What happened, and why", "发生了什么，为什么", "何が起きたか、なぜか"],
  ["What cures it", "怎样解决", "直し方"],
  ["A lock cannot stop a driver that slept through the end of its lease. The database can: with a fencing token, it refuses the write of every driver that is not the newest holder.",
    "锁拦不住一个睡过了租约的司机。数据库可以：有了 fencing token，凡不是最新持锁者的写入，它都拒绝。",
    "リースの終わりを眠り過ごしたドライバーを、ロックは止められません。データベースなら止められます。フェンシングトークンがあれば、最新の持ち主でない書き込みを拒みます。"],
  ["Run the cure: setnx-fenced", "运行解决办法：setnx-fenced", "直し方を実行：setnx-fenced"],
  ["Drivers grab orders. A lock in Redis (setnx, with a lease of 1 s) protects each order, and a pause stops one holder just before its write.", "司机在抢单。Redis 里的锁（setnx，租约 1 秒）保护每个订单，一次暂停在写入之前停住一个持锁者。", "ドライバーが注文を取り合います。Redis のロック（setnx、リースは 1 秒）が各注文を守り、一時停止が一人の持ち主を書き込みの直前に止めます。"],
  ["The same drivers, the same lock and the same pause. Each grant now has a number, and the database refuses a write with an older number.", "同样的司机、锁和暂停。现在每次授予都有编号，数据库拒绝编号较旧的写入。", "同じドライバー、同じロック、同じ一時停止です。今度は許可ごとに番号があり、データベースは古い番号の書き込みを拒みます。"],
  ["Order {order} was grabbed twice: {winners} won.", "订单 {order} 被抢了两次：{winners}。", "注文 {order} は二度取られました：{winners}。"],
  ["Order {order} was grabbed {n} times: {winners} won.", "订单 {order} 被抢 {n} 次：{winners}。", "注文 {order} は {n} 回取られました：{winners}。"],
  ["Order {order} has one winner: {winners}.", "订单 {order} 只有一个赢家：{winners}。", "注文 {order} の勝者は一人です：{winners}。"],
  ["strategy", "策略", "戦略"],
  ["guard", "写入条件", "書き込みの条件"],
  ["fault", "故障", "障害"],
  ["grabs a second", "每秒抢单数", "毎秒の取得数"],
  ["units of an order", "每单份额", "注文の数量"],
  ["slow motion, 1 : 5", "慢放，1 : 5", "スロー、1 : 5"],
  ["Stopping…", "正在停止…", "停止中…"],
  ["Start anew", "重新开始", "やり直す"],
  ["Stop", "停止", "停止"],
  ["Orders", "订单", "注文"],
  ["By hand", "手动", "手動"],
  ["New order", "新订单", "新しい注文"],
  ["Grab", "抢单", "取る"],
  ["Write", "写入", "書く"],
  ["Driver A", "司机 A", "ドライバー A"],
  ["Driver B", "司机 B", "ドライバー B"],
  ["opens an order for the two drivers", "为两个司机开一个订单", "二人のドライバーのために注文を開きます"],
  ["order {order}: driver A at instance {a}, driver B at instance {b}", "订单 {order}：司机 A 在实例 {a}，司机 B 在实例 {b}", "注文 {order}：ドライバー A はインスタンス {a}、ドライバー B はインスタンス {b}"],
  ["grabs; is held before it writes", "在抢；写入之前被拦住", "取得中。書き込みの前で止められています"],
  ["Keys in Redis", "Redis 里的键", "Redis のキー"],
  ["key", "键", "キー"],
  ["token", "令牌", "トークン"],
  ["Answers", "应答", "応答"],
  ["Latency, last 5 s", "延迟，最近 5 秒", "遅延、直近 5 秒"],
  ["from the schedule", "从计划时刻起", "予定の時刻から"],
  ["from sending", "从发送起", "送信から"],
  ["Each second", "每一秒", "毎秒"],
  ["The charts, answers and latency count the drivers that a run sends, not grabs by hand. A fault strikes one of 20 orders. If it lasts longer than the grabs of these orders, the next 20 orders wait for its end.", "图表、应答和延迟只统计运行派出的司机，不含手动抢单。每 20 个订单中有一个遭到故障。如果故障比这些订单的抢单更久，下 20 个订单就等它结束。", "グラフ、応答、遅延は実行が送るドライバーだけを数え、手動の取得は含みません。障害は 20 件の注文のうち 1 件に起きます。それがこれらの取得より長く続くと、次の 20 件はその終わりを待ちます。"],
  ["✓ won; ✗ has more rows than units; · not won yet; ∞ undersold", "✓ 已抢到；✗ 行数多于份额；· 还没有抢到；∞ 少卖", "✓ 取得済み、✗ 行数が個数を超過、· まだ取られていない、∞ 売れ残り"],
  ["It worked. The lock let a second driver in again, while the first one slept. But each grant has a number, the fencing token, and the database refused the write with the older number.", "有效。第一个司机睡着时，锁又放进了第二个司机。但每次授予都有编号，即 fencing token，数据库拒绝了编号较旧的写入。", "直りました。最初のドライバーが眠っている間に、ロックはまた二人目を入れました。しかし許可ごとに番号（フェンシングトークン）があり、データベースは古い番号の書き込みを拒みました。"],
  ["Before: the same without the numbers", "之前：同样的情况，没有编号", "前：番号がない場合"],
  ["answers a second", "每秒应答数", "毎秒の応答数"],
  ["latency: p50, and p99 of the last 5 s", "延迟：p50，以及最近 5 秒的 p99", "遅延：p50 と、直近 5 秒の p99"],
  ["double-grabs", "重复抢单", "二重取得"],
  ["second {t}: {n} answers, p50 {p50}, p99 {p99}, {doubles} double-grabs", "第 {t} 秒：{n} 个应答，p50 {p50}，p99 {p99}，{doubles} 次重复抢单", "{t} 秒目：応答 {n}、p50 {p50}、p99 {p99}、二重取得 {doubles}"],
  ["not known (it needs 100 answers in 5 s)", "未知（5 秒内需要 100 个应答）", "不明（5 秒に 100 応答が必要）"],
  ["No order is drawn", "没有画出订单", "描かれた注文はありません"],
  ["Order {order} ({run}): {result}", "订单 {order}（{run}）：{result}", "注文 {order}（{run}）：{result}"],
  ["no driver has it", "还没有司机抢到", "まだ誰も取っていません"],
  ["{winners} won", "{winners} 抢到", "{winners} が勝ち"],
  ["{n} drivers won", "{n} 个司机抢到", "{n} 人が勝ち"],
  ["{n} of {units} units sold", "{units} 份中售出 {n} 份", "{units} 個中 {n} 個が売れました"],
  ["undersold", "少卖", "売れ残り"],
  ["No driver has come to it yet.", "还没有司机来。", "まだドライバーは来ていません。"],
  ["Start, or open an order by hand: who waits, holds the lock, reads and writes is drawn here as it happens.", "点击开始，或手动开一个订单：谁在等待、持锁、读和写，会实时画在这里。", "開始するか、手動で注文を開いてください。待つ、ロックを持つ、読む、書くが、起きたとおりにここに描かれます。"],
  ["strategies:", "策略：", "戦略："],
  ["faults:", "故障：", "障害："],
  ["Nothing was filled yet: choose strategies and faults. A cell takes some seconds, and cells with faults run several at a time.", "还没有填：请选择策略和故障。一格需要几秒，有故障的几格同时运行。", "まだ何も埋まっていません。戦略と障害を選んでください。一つのセルに数秒かかり、障害のあるセルはいくつか同時に動きます。"],
  ["Every schedule within bounds, in virtual time: the shortest that breaks a lock, step by step.", "在虚拟时间里搜索界限之内的每个调度：一步一步显示破坏锁的最短一个。", "仮想時間で範囲内のすべてのスケジュールを調べ、ロックを破る最短のものを一歩ずつ示します。"],
  ["drivers", "司机", "ドライバー"],
  ["what may go wrong, once", "可能出的一次故障", "一度だけ起こりうる障害"],
  ["Search", "搜索", "探す"],
  ["Four answers lead to at most three locks, with what breaks each and what it costs.", "四个回答得出至多三种锁，以及什么会破坏它、代价多大。", "四つの答えから、最大三つのロックと、それを破るもの、そのコストが分かります。"],
  ["What you must still do", "你仍须做的事", "それでもすべきこと"],
  ["colours", "颜色", "色"],
  ["as the system", "跟随系统", "システムに従う"],
  ["light", "浅色", "明るい"],
  ["dark", "深色", "暗い"],
  ["Keys", "按键", "キー操作"],
  ["Close", "关闭", "閉じる"],
  ["{kind} stack", "{kind} 环境", "{kind} スタック"],
  ["driver {n}", "司机 {n}", "ドライバー {n}"],
  ["{list} and {last}", "{list} 和 {last}", "{list} と {last}"],
  ["grabbed", "抢到", "取得"],
  ["taken", "已被抢", "取られていた"],
  ["busy", "拿不到锁", "ロック待ち切れ"],
  ["error", "错误", "エラー"],
  ["timeout", "超时", "時間切れ"],
  ["latency ?: too few answers; p99 needs 100", "延迟 ?：应答太少；p99 需要 100 个", "遅延 ?：応答が足りません。p99 には 100 必要です"],
  ["Earlier runs", "之前的运行", "前の実行"],
  ["none (no lock)", "none（没有锁）", "none（ロックなし）"],
  ["no fault", "没有故障", "障害なし"],
  ["its own guard", "自带的写入条件", "既定の書き込みの条件"],
  ["no lock is held", "没有持有的锁", "ロックは持たれていません"],
  ["{guard}, its own", "{guard}（自带）", "{guard}（既定）"],
  ["Names, steps and failure modes are in English.", "名称、步骤和失效模式是英文。", "名前、手順、故障モードは英語です。"],
  ["none (no fault)", "none（没有故障）", "none（障害なし）"],
  ["by hand", "手动", "手動"],
  ["seconds since the run began", "运行开始以来的秒数", "実行開始からの秒数"],
  ["refused: the database has seen a newer fencing token", "被拒绝：数据库已经见过更新的 fencing token", "拒否：データベースはもっと新しいフェンシングトークンを見ました"],
  ["gave up: it learned that its lease was lost", "放弃：得知租约已经失去", "断念：リースを失ったと知りました"],
  ["failed: a server did not do what it was asked", "失败：某个服务器没有完成请求", "失敗：サーバーが求めに応じませんでした"],
  ["not known: no answer to its write arrived", "未知：写入没有得到应答", "不明：書き込みの応答が届きませんでした"],
  ["gave up: its time was over", "放弃：时间已到", "断念：時間切れです"],
  ["Safe", "安全", "安全"],
  ["Unsafe", "不安全", "安全でない"],
  ["Stuck", "卡住", "停止"],
  ["Unknown", "未知", "不明"],
  ["latency, logarithmic", "延迟，对数刻度", "遅延、対数目盛り"],
  ["time since the load began", "负载开始以来的时间", "負荷の開始からの時間"],
  ["percentile of the answers", "应答的百分位", "応答のパーセンタイル"],
  ["Units sold over time", "售出份额随时间的变化", "時間ごとの売れた個数"],
  ["units sold, in all", "累计售出份额", "売れた個数の累計"],
  ["the fault", "故障", "障害"],
  ["ledger grabs", "账本：抢单", "台帳：取得"],
  ["ledger double", "账本：重复", "台帳：二重"],
  ["ledger stuck", "账本：卡住", "台帳：停止"],
  ["ledger orders", "账本：订单", "台帳：注文"],
  ["events overlaps", "事件：重叠", "イベント：重なり"],
  ["events near misses", "事件：险情", "イベント：ニアミス"],
  ["ms lease", "租约，ms", "リース、ms"],
  ["ms belief gap", "误以为持锁，ms", "思い込みの間、ms"],
  ["answers grabbed", "应答：抢到", "応答：取得"],
  ["answers taken", "应答：已被抢", "応答：取られていた"],
  ["answers busy", "应答：拿不到锁", "応答：ロック待ち切れ"],
  ["answers error", "应答：错误", "応答：エラー"],
  ["answers timeout", "应答：超时", "応答：時間切れ"],
  ["none is chosen", "没有选择", "選ばれていません"],
  ["Fill 1 cell", "填 1 格", "1 セルを埋める"],
  ["Fill {n} cells", "填 {n} 格", "{n} セルを埋める"],
  ["unsafe", "不安全", "安全でない"],
  ["safe", "安全", "安全"],
  ["unknown", "未知", "不明"],
  ["stuck", "卡住", "停止"],
  ["✗ unsafe", "✗ 不安全", "✗ 安全でない"],
  ["? unknown", "? 未知", "? 不明"],
  ["✓ safe", "✓ 安全", "✓ 安全"],
  ["∞ stuck", "∞ 卡住", "∞ 停止"],
  ["⇄ two inside", "⇄ 两个在内", "⇄ 二人が中に"],
  ["≠ not as expected", "≠ 与预期不符", "≠ 予想と違う"],
  ["Each cell opens: it shows the drawing, the points, the figures and the command.", "每一格都可以打开：有图、故障点、数字和命令。", "どのセルも開けます。図、障害の点、数値、コマンドがあります。"],
  ["each order went to one driver", "每个订单只给了一个司机", "各注文は一人だけが取った"],
  ["an order was grabbed twice; the number counts the points of a grab, or without a fault the grabs that were too many", "有订单被抢两次；数字是故障点数，没有故障时是多出的抢单数", "注文が二度取られた。数は障害の点の数、障害がなければ余分な取得の数"],
  ["the run could not show whether the order is safe", "这次运行看不出来", "この実行では分からない"],
  ["the lock let two holders in; the number counts the points at which it did", "锁放进了两个持有者，数字是故障点数", "ロックが二人を入れた。数は障害の点の数"],
  ["the database refused the write of a late holder", "数据库拒绝了迟到者的写入", "データベースが遅れた持ち主の書き込みを拒んだ"],
  ["not as expected of the strategy", "与对该策略的预期不符", "戦略に予想されたものと違う"],
  ["What happened", "发生了什么", "何が起きたか"],
  ["Properties that were not kept", "没有保持的性质", "守られなかった性質"],
  ["Figures", "数字", "数値"],
  ["Again", "再来一次", "もう一度"],
  ["copy", "复制", "コピー"],
  ["close (Esc)", "关闭 (Esc)", "閉じる (Esc)"],
  ["Latency over time", "延迟随时间的变化", "時間ごとの遅延"],
  ["point", "故障点", "障害の点"],
  ["verdict", "判定", "判定"],
  ["struck", "命中", "命中"],
  ["double", "重复", "二重"],
  ["overlaps", "重叠", "重なり"],
  ["near misses", "险情", "ニアミス"],
  ["explained by", "失效模式", "故障モード"],
  ["how", "过程", "手順"],
  ["cure", "解决办法", "直し方"],
  ["seen by", "出现于", "見られる場面"],
  ["source", "来源", "出典"],
  ["May two drivers win the same order?", "两个司机可以抢到同一个订单吗？", "二人のドライバーが同じ注文を取ってもよいですか。"],
  ["no, and one conditional UPDATE can write the winner", "不可以，一条带条件的 UPDATE 就能写入赢家", "いいえ。条件付きの UPDATE 一つで勝者を書けます"],
  ["no, and the write needs more than one UPDATE", "不可以，写入需要不止一条 UPDATE", "いいえ。書き込みには UPDATE が二つ以上必要です"],
  ["yes: the lock is only there to save work", "可以：锁只是为了省去重复劳动", "はい。ロックは手間を省くだけです"],
  ["Which servers do you run besides the database?", "除了数据库，你还运行哪些服务器？", "データベースのほかに、どのサーバーを動かしていますか。"],
  ["none", "没有", "なし"],
  ["one Redis", "一个 Redis", "Redis 一つ"],
  ["five Redis nodes", "五个 Redis 节点", "Redis ノード五つ"],
  ["How long does the work take, compared with the lease (the time after which a lock ends by itself)?", "与租约（锁自动结束的时间）相比，工作要多久？", "リース（ロックが自然に終わるまでの時間）に比べて、仕事はどれだけかかりますか。"],
  ["always less", "总是更短", "いつも短い"],
  ["sometimes more", "有时更长", "ときどき長い"],
  ["it may never return", "可能永远不返回", "戻らないことがある"],
  ["What is the service written in?", "服务用什么语言写的？", "サービスの言語は何ですか。"],
  ["Java with Spring", "Java 和 Spring", "Java と Spring"],
  ["another language", "其他语言", "ほかの言語"],
  ["Take {strategy} with the guard {guard}.", "用 {strategy}，写入条件为 {guard}。", "{strategy} を、書き込みの条件 {guard} で使います。"],
  ["in your stack", "在你的技术栈里", "あなたの環境では"],
  ["a request takes", "一次请求需要", "一回の要求に"],
  ["{commands} commands of Redis, {statements} statements, on average over winners and losers", "平均 {commands} 条 Redis 命令，{statements} 条语句（赢家和输家都算）", "平均で Redis コマンド {commands}、SQL 文 {statements}（勝者と敗者の両方）"],
  ["the lock alone", "只算锁", "ロックだけ"],
  ["{n} round trips", "{n} 次往返", "{n} 往復"],
  ["there is none", "没有锁", "ロックはない"],
  ["not measured", "没有测量", "測っていない"],
  ["what breaks it", "什么会破坏它", "破るもの"],
  ["nothing of what was tried", "试过的都没有", "試したものではない"],
  ["grabbed twice under", "重复抢单：", "二度取られる："],
  ["no order twice, but two inside the lock under", "没有重复抢单，但锁里有两个：", "二度取られないが、二人がロックの中に："],
  ["an order that no driver can grab any more under", "订单再也没人能抢：", "誰も取れない注文："],
  ["failure modes seen", "见过的失效模式", "見られた故障モード"],
  ["measure it yourself", "自己测量", "自分で測る"],
  ["Searching the schedules of {strategy}: at most 20 seconds.", "正在搜索 {strategy} 的调度：最多 20 秒。", "{strategy} のスケジュールを調べています：最長 20 秒。"],
  ["Nothing was searched.", "没有搜索。", "何も調べませんでした。"],
  ["none was opened yet", "还没有订单", "まだありません"],
];
export const texts = { zh: {}, ja: {} };
for (const [en, zh, ja] of entries) [texts.zh[en], texts.ja[en]] = [zh, ja];

const stored = "lab-language";
const ofBrowser = [...(navigator.languages || [])].map((l) => l.slice(0, 2)).find((l) => languages[l]);
let language = languages[kept(stored)] ? kept(stored) : ofBrowser || "en";
const listeners = [];

export const spoken = () => language;

// say returns a text in the language of the page, with its slots filled in. A text without a
// translation stays English.
export const say = (text, slots = {}) => ((texts[language] && texts[language][text]) || text).replace(/\{(\w+)\}/g, (slot, name) => (name in slots ? String(slots[name]) : slot));

// tell returns a text or a sentence of a result in the language of the page.
export const tell = (text) => (language === "en" ? text : (translateResult(text, language, (t) => texts[language][t]) ?? text));

// original returns the English text of a text in the language of the page.
export const original = (text) => entries.find((e) => e.includes(text))?.[0] || text;

const translated = new WeakMap(); // the English text of each node, and what it was translated to

// translate puts the texts below root that have a translation into the language of the page.
export function translate(root) {
  const walk = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  for (let n = walk.nextNode(); n; n = walk.nextNode()) {
    const before = translated.get(n), shown = n.data.trim();
    const english = before && before.to === shown ? before.english : shown, to = tell(english);
    if (to === shown) continue;
    n.data = n.data.replace(shown, () => to);
    translated.set(n, { english, to });
  }
}

// names joins the drivers of ledger rows, such as "driver 3 (8004)", in the language of the page.
export function names(rows) {
  const all = rows.map((r) => (r.startsWith("driver ") ? say("driver {n}", { n: r.slice(7) }) : r));
  return all.length < 2 ? all.join("") : say("{list} and {last}", { list: all.slice(0, -1).join(", "), last: all.at(-1) });
}

// onLanguage calls f now, and again whenever the user chooses another language.
export function onLanguage(f) {
  listeners.push(f);
  f();
}

export function chooseLanguage(next) {
  language = next;
  keep(stored, next);
  document.documentElement.lang = next;
  speak(next);
  for (const f of listeners) f();
}

// The fixed texts of the page.
const fixed = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let n = walker.nextNode(); n; n = walker.nextNode()) if (texts.zh[n.data.trim()]) fixed.push([n, n.data, n.data.trim()]);
onLanguage(() => { for (const [n, all, text] of fixed) n.data = all.replace(text, () => say(text)); });
speak(language);
document.documentElement.lang = language;
