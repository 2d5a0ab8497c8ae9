// The sentences of results, in English, Chinese and Japanese. The English text is what the program
// writes: {n}, {m} and {k} are numbers, {s}, {f} and {p} are names, and {x} is any text. A letter before
// "?" may be missing.
export const results = [
  ["Nothing has been measured", "还没有测量", "まだ何も測っていません"],
  ["The one cell is as expected", "这一格符合预期", "そのセルは予想どおりです"],
  ["All {n} cells are as expected", "全部 {n} 格都符合预期", "{n} セルすべてが予想どおりです"],
  ["{n} cells? (is|are) not as expected, of {m}", "{m} 格中有 {n} 格与预期不符", "{m} セルのうち {n} セルが予想と違います"],
  ["{n} cells? (was|were) measured, and no verdict was expected", "测量了 {n} 格，对它们没有预期", "{n} セルを測りました。予想はありません"],
  ["{n} cells are to be run: the first takes longest", "要运行 {n} 格，第一格最久", "{n} セルを動かします。最初が最も長くかかります"],
  ["{n} of {m} cells", "{m} 格中的 {n} 格", "{m} セルのうち {n} セル"],
  ["Stopped after {n} of {m} cells", "已停止，完成 {m} 格中的 {n} 格", "{m} セルのうち {n} セルで止めました"],
  ["The run is not complete", "运行没有完成", "実行は完了していません"],
  ["{n} let an order be grabbed twice", "{n} 格有订单被抢两次", "{n} セルで注文が二度取られました"],
  ["{n} left an order that no driver can grab", "{n} 格留下没有司机能抢的订单", "{n} セルで誰も取れない注文が残りました"],
  ["{n} could not be judged", "{n} 格无法判定", "{n} セルは判定できません"],
  ["{n} kept every order to one driver", "{n} 格的每个订单只给了一个司机", "{n} セルで各注文は一人だけのものでした"],
  ["{x} \\(in {n} of these, the lock still let two holders in\\)", "{x}（其中 {n} 格的锁仍放进了两个持有者）", "{x}（うち {n} セルでは、ロックがそれでも二人を入れました）"],
  ["Most went wrong in {x}: {n} grabs? too many", "出错最多的是 {x}：多抢 {n} 次", "最も多く壊れたのは {x}：余分な取得 {n} 回"],
  ["(?<v>Safe|Unsafe|Stuck|Unknown) at {n} of the {m} points? at which the fault struck", "{v}：故障击中的 {m} 个点中有 {n} 个", "{v}：障害が起きた {m} 点のうち {n} 点"],
  ["(?<v>Safe|Unsafe|Stuck|Unknown)", "{v}", "{v}"],
  ["Unsafe, {n} grabs? too many", "不安全，多抢 {n} 次", "安全でない、余分な取得 {n} 回"],
  ["the lock let two holders in at {n}", "锁在 {n} 个点放进了两个持有者", "ロックは {n} 点で二人を入れました"],
  ["the lock let two holders in", "锁放进了两个持有者", "ロックは二人を入れました"],
  ["the lock kept holders apart", "锁把持有者分开了", "ロックは持ち主を分けました"],
  ["whether the lock kept holders apart is not known", "不知道锁是否把持有者分开了", "ロックが持ち主を分けたかは不明です"],
  ["{n} writes? (was|were) refused", "拒绝了 {n} 次写入", "{n} 回の書き込みが拒まれました"],
  ["no verdict was expected", "没有预期的判定", "予想はありません"],
  ["as expected", "符合预期", "予想どおりです"],
  ["expected was: {x}", "预期是：{x}", "予想は {x}"],
  ["Not run: {x}", "没有运行：{x}", "動かしていません：{x}"],
  ["the fault touches nothing that the strategy uses", "故障不涉及该策略使用的东西", "障害は戦略が使うものに触れません"],
  ["{n} of {m} orders (was|were) grabbed more than once, {k} grabs? too many", "{m} 个订单中有 {n} 个被抢多次，多抢 {k} 次", "{m} 件の注文のうち {n} 件が二度以上取られ、余分な取得は {k} 回です"],
  ["No order was grabbed twice, but {n} of {m} orders (was|were) left that no driver can grab any more", "没有订单被抢两次，但 {m} 个订单中有 {n} 个再也没有司机能抢", "二度取られた注文はありませんが、{m} 件のうち {n} 件は誰も取れません"],
  ["Order {n}, on which {p} was broken", "订单 {n}，它违反了性质 {p}", "注文 {n}、性質 {p} が破られました"],
  ["Order {n}, on which the database refused a late write", "订单 {n}，数据库拒绝了迟到的写入", "注文 {n}、データベースが遅れた書き込みを拒みました"],
  ["Errors: {x}", "错误：{x}", "エラー：{x}"],
  ["What became of each strategy under each fault. Arrow keys go from cell to cell, Enter opens one", "每种策略在每种故障下的结果。方向键在格间移动，Enter 打开一格", "障害ごとの各戦略の結果。矢印キーでセルを移り、Enter で開きます"],
  ["It was not run", "没有运行", "動かしていません"],
  ["There is no drawing, because the instances recorded nothing", "没有图，因为实例没有记录任何东西", "図はありません。インスタンスが何も記録しなかったためです"],
  ["There is no drawing, because no order went wrong", "没有图，因为没有订单出错", "図はありません。壊れた注文がないためです"],
  ["This is none of the failure modes that have a name", "它不属于任何有名字的失效模式", "名前のある故障モードではありません"],
  ["Points at which the fault was to strike: {n}", "故障要击中的点：{n}", "障害を起こす点：{n}"],
  ["{n} points? at which the fault did no harm", "{n} 个点上故障没有造成损害", "障害が害を与えなかった {n} 点"],
  ["{s} under {f}", "{f} 下的 {s}", "{f} のもとの {s}"],
  ["{s} without a fault", "没有故障的 {s}", "障害なしの {s}"],
  ["{s} \\(no lock\\) under {f}", "{f} 下的 {s}（没有锁）", "{f} のもとの {s}（ロックなし）"],
  ["{s} \\(no lock\\) without a fault", "没有故障的 {s}（没有锁）", "障害なしの {s}（ロックなし）"],
  ["No part of the run has the 100 answers that a p99 needs", "运行的任何一段都没有 p99 需要的 100 个应答", "p99 に必要な 100 応答のある区間がありません"],
  ["Distribution of latencies, {n} answers", "延迟的分布，{n} 个应答", "遅延の分布、応答 {n} 件"],
  ["{p} from the schedule", "{p}，从计划时刻起", "{p}、予定の時刻から"],
  ["{p} from sending", "{p}，从发送起", "{p}、送信から"],
  ["The results are in {x}, where report.html shows this matrix", "结果在 {x}，其中的 report.html 就是这张矩阵", "結果は {x} にあり、その report.html がこのマトリックスです"],
  ["Not now: {x} is under way", "现在不行：{x}正在进行", "今はできません：{x}が動いています"],
  ["a live run \\(view Live\\)", "实况中的运行", "ライブの実行"],
  ["a matrix \\(view Matrix\\)", "矩阵", "マトリックス"],
  ["a search \\(view Schedules\\)", "调度的搜索", "スケジュールの探索"],
  ["exercise {n} \\(view Workshop\\)", "练习 {n} ", "演習 {n} "],
  ["{s} breaks {p} in {n} steps", "{s} 在 {n} 步内违反 {p}", "{s} は {n} 歩で {p} を破ります"],
  ["None of the locks that were run fits: let the database decide, by one conditional UPDATE", "运行过的锁都不合适：让数据库用一条带条件的 UPDATE 来决定", "動かしたロックに合うものはありません。条件付きの UPDATE 一つでデータベースに決めさせてください"],
  ["If the work outlasts the lease, the lock lets a second driver in. The late write is refused", "如果工作比租约长，锁会放进第二个司机，迟到的写入被拒绝", "仕事がリースより長いと、ロックは二人目を入れます。遅れた書き込みは拒まれます"],
  ["If the work outlasts the lease, the lock lets a second driver in, and both may write", "如果工作比租约长，锁会放进第二个司机，两人都可能写入", "仕事がリースより長いと、ロックは二人目を入れ、どちらも書けます"],
  ["Work that never returns holds the lock permanently: limit the time of the work", "永不返回的工作会一直占着锁：请限制工作时间", "戻らない仕事はロックを持ち続けます。仕事の時間を限ってください"],
  ["no lock: one guarded UPDATE decides", "没有锁：由一条带条件的 UPDATE 决定", "ロックなし：条件付きの UPDATE 一つが決める"],
  ["no lock: an INSERT into a table with UNIQUE\\(order_id\\) decides", "没有锁：由带 UNIQUE(order_id) 的表的 INSERT 决定", "ロックなし：UNIQUE(order_id) のある表への INSERT が決める"],
  ["GET_LOCK; the same session reads and writes", "GET_LOCK，读写都用它自己的会话", "GET_LOCK。読み書きもそのセッションで行う"],
  ["SELECT … FOR UPDATE, in a transaction that spans the work", "用 SELECT … FOR UPDATE 包住工作", "仕事を SELECT … FOR UPDATE で囲む"],
  ["SET NX PX, released by compare-and-delete", "SET NX PX，先比较再删除来释放", "SET NX PX。比較して削除で解放する"],
  ["setnx with a fencing token, raised before the read", "带 fencing token 的 setnx，令牌在读取之前提升", "フェンシングトークン付きの setnx。読む前にトークンを上げる"],
  ["a lease that is renewed; waiters are notified of a release", "会续期的租约，并通知等待者", "更新されるリース。待つ側に知らせる"],
  ["watchdog with a fencing token, raised before the read", "带 fencing token 的 watchdog，令牌在读取之前提升", "フェンシングトークン付きの watchdog。読む前にトークンを上げる"],
  ["first come, first served: a release passes the lock to the next waiter", "先到先得：释放时交给下一个并唤醒它", "先着順：解放すると次へ渡して起こす"],
  ["a majority of independent nodes; the lease is extended; no fencing token", "独立节点的多数，可延长；没有 fencing token", "独立したノードの過半数。延長できる。フェンシングトークンはない"],
  ["ephemeral sequential nodes; each waiter watches the node before its own", "临时顺序节点，监视前一个", "一時的な連番ノード。一つ前を監視する"],
  ["zookeeper with the czxid as fencing token, raised before the read", "zookeeper，以 czxid 为 fencing token，在读取之前提升", "czxid をフェンシングトークンにした zookeeper。読む前に上げる"],
  ["the key with the lowest create revision has the lock; a lease keeps the key", "租约上最小的创建版本号", "リース上の最小の作成リビジョン"],
  ["etcd with the create revision as fencing token, raised before the read", "etcd，以创建版本号为 fencing token，在读取之前提升", "作成リビジョンをフェンシングトークンにした etcd。読む前に上げる"],
  ["Check how many rows the write changed. No row means that another driver has won", "检查写入改了几行。没有行表示另一个司机赢了", "書き込みで変わった行数を確かめます。0 行ならほかのドライバーが勝っています"],
  ["Put the fencing token into the WHERE of the write. No changed row means that a newer holder came, or that the order is taken", "把 fencing token 放进写入的 WHERE。没有改动的行表示来了更新的持有者，或订单已被抢", "フェンシングトークンを書き込みの WHERE に入れます。0 行なら新しい持ち主が来たか、注文は取られています"],
  ["If that first UPDATE changes no row and the order is open, raise the counter in Redis to the order's fence, and take the lock again. Redis may have lost the counter, and then the database would refuse every driver", "如果第一条 UPDATE 没有改动任何行，而订单仍是开放的，请把 Redis 里的计数器提高到订单的 fence，再重新取锁。Redis 可能丢了计数器，否则数据库会拒绝每个司机", "最初の UPDATE が 0 行で注文がまだ開いているなら、Redis のカウンターを注文の fence まで上げ、ロックを取り直します。Redis がカウンターを失うと、データベースは全員を拒みます"],
  ["Without a guard, read the order while you hold the lock, and give up if it is taken", "没有写入条件时，持锁期间读订单，已被抢就放弃", "書き込みの条件がなければ、ロックを持つ間に注文を読み、取られていたらやめます"],
  ["Treat the duplicate-key error of the INSERT as \"taken\"", "把 INSERT 的重复键错误当作“已被抢”", "INSERT の重複キーのエラーを「取られていた」とみなします"],
  ["Read again if COMMIT fails. The database may have done it before the connection broke", "COMMIT 失败后再读一次。数据库可能在断线之前已经提交", "COMMIT が失敗したら読み直します。接続が切れる前に済んでいるかもしれません"],
  ["Limit the time of the work if the lock has no lease or renews it. Work that hangs keeps such a lock", "如果锁没有租约或会续期，请限制工作时间。卡住的工作会一直占着这样的锁", "リースがないか更新されるロックでは、仕事の時間を限ります。止まった仕事がロックを持ち続けます"],
  ["Bound the work if the lease is not renewed, so that it ends before the lease does", "如果租约不续期，请限制工作，使它在租约之前结束", "リースを更新しないなら、リースより先に終わるよう仕事を限ります"],
  ["Let the database refuse a second row, whatever the lock does. A late driver then gets a duplicate-key error", "不管锁怎样，让数据库拒绝第二行。迟到的司机会得到重复键错误", "ロックに関係なく、データベースに二行目を拒ませます。遅れたドライバーは重複キーのエラーを受けます"],
  ["What breaks a lock, and its commands and statements: {x}, of all strategies under all faults on real servers, at commit {s}( and {p})?. Commands and statements are averages over all requests of a plain load, including the losers", "什么会破坏锁，以及命令和语句：{x}，真实服务器上所有策略和所有故障，提交 {s}、{p}。命令和语句是普通负载下全部请求（含输家）的平均", "ロックを破るもの、コマンドと文の数：{x}。実際のサーバーで全戦略と全障害、コミット {s}、{p}。数は普通の負荷での敗者も含む平均です"],
  ["What it costs alone: {x}, at commit {s}; in round trips to Redis, {p} µs there, with the 95 % interval over rounds", "锁单独的代价：{x}，提交 {s}；以到 Redis 的往返计，那里是 {p} µs，带各轮的 95 % 区间", "ロックだけのコスト：{x}、コミット {s}。Redis への往復（{p} µs）で数え、95 % 区間を付けます"],
  ["The libraries, what was claimed, and why: docs/which-lock.md. This file and the results are in the repository of Grab Lab", "各个库、它们的声明和理由：docs/which-lock.md。该文件和结果在 Grab Lab 的仓库里", "ライブラリ、主張とその理由：docs/which-lock.md。このファイルと結果は Grab Lab のリポジトリにあります"],
  ["redlock, for which you have the five nodes, is not among these, because it let an order be grabbed twice under {x}", "你有五个节点，但这里没有 redlock，因为它在 {x} 下让订单被抢两次", "ノードは五つありますが redlock はありません。{x} のもとで注文が二度取られたためです"],
];

const slot = { n: "[\\d,]+", m: "[\\d,]+", k: "[\\d,]+", s: "[^\\s()]+", f: "[^\\s()]+", p: "[^\\s()]+", x: ".+" };
const patterns = results.map(([en, zh, ja]) => [new RegExp(`^${en.replace(/\.(?=\s)/g, "\\.").replace(/\{(\w)\}/g, (_, name) => `(?<${name}>${slot[name]})`)}$`), { zh, ja }]);
const marks = { ".": "。", ";": "；", ":": "：" };

// translateResult returns a sentence of a result in a language, or undefined if it is not in the list.
// A text of several sentences or clauses, or a list, is translated part by part. exact returns the
// translation of a fixed text of the page.
export function translateResult(text, language, exact) {
  const again = (t) => translateResult(t, language, exact);
  const clause = (t) => {
    if (exact(t)) return exact(t);
    for (const [pattern, to] of patterns) {
      const found = t.match(pattern);
      if (found) return to[language].replace(/\{(\w)\}/g, (_, name) => again(found.groups[name] || "") ?? found.groups[name]);
    }
  };
  const whole = clause(text), core = text.slice(0, -1), mark = marks[text.slice(-1)];
  if (whole !== undefined) return whole;
  if (mark && clause(core) !== undefined) return clause(core) + mark;
  for (const [by, join] of [[/(?<=[.;]) /, ""], [/(?<=:) /, ""], [/, (?![^(]*\))| and (?![^(]*\))/, "、"]]) {
    const parts = text.split(by), all = parts.length > 1 ? parts.map(again) : [];
    if (all.some((p) => p !== undefined) && (join === "" || !all.includes(undefined))) return parts.map((p, i) => all[i] ?? p + " ").join(join).trim();
  }
}
