//! What figures can sweep and measure beyond the number of clients, on small set-ups.

use farside_lab::figure::file::Figure;
use farside_lab::figure::sweep::{self, Point};

/// A figure of these sweeps and series, both in TOML.
fn figure(sweeps: &str, series: &[(&str, u64, &str)]) -> Result<Figure, String> {
    let mut text = format!("id = 'f'\ntitle = ''\nsource = ''\nsetup = ''\nclaim = []\npanel = []\n{sweeps}\n");
    for (name, clients, lock) in series {
        text += &format!(
            "[[series]]\nname = '{name}'\nlabel = ''\nclients = [{clients}]\nclients_per_cn = 4\nprofile = 'cx4'\n\
             duration = '2ms'\nlock = {{ locks = 20, theta = 0.9, section_verbs = 1, {lock} }}\n"
        );
    }
    Figure::parse(&text)
}

fn run(figure: &Figure) -> Vec<Point> {
    sweep::run(figure, false, &mut None).expect("a figure that runs")
}

fn number(points: &[Point], series: &str, x: f64, key: &str) -> f64 {
    let point = points
        .iter()
        .find(|point| point.series == series && point.x.total_cmp(&x).is_eq());
    let value = point.and_then(|point| point.number(key));
    value.unwrap_or_else(|| panic!("{series} has no {key} at {x}"))
}

#[test]
fn each_series_takes_part_in_each_sweep() {
    let sweeps = "[[sweep]]\nname = 'c'\nkey = 'clients'\nlabel = 'clients'\nvalues = [1, 8]\nquick = [8]\n\
                  [[sweep]]\nname = 's'\nkey = 'section_verbs'\nlabel = 'READs'\nvalues = [3]\nseries = ['b']\n";
    let both = [("a", 4, "name = 'cas-rw'"), ("b", 4, "name = 'dslr'")];
    let figure = figure(sweeps, &both).expect("a figure");
    let names: Vec<&str> = figure.series.iter().map(|series| series.name.as_str()).collect();
    assert_eq!(names, ["a@c", "b@c", "b@s"]);
    assert_eq!(figure.x_label_of(&figure.series[2]), "READs");
    assert_eq!(figure.xs_of(&figure.series[0], true), [8.0]);
    let points = run(&figure);
    let xs: Vec<(&str, f64)> = points.iter().map(|point| (point.series.as_str(), point.x)).collect();
    assert_eq!(
        xs,
        [("a@c", 1.0), ("a@c", 8.0), ("b@c", 1.0), ("b@c", 8.0), ("b@s", 3.0)]
    );
    assert_eq!(points[1].number("clients"), Some(8.0));
    assert!(number(&points, "b@s", 3.0, "per_op.reads") > number(&points, "b@c", 1.0, "per_op.reads") + 1.5);
}

/// What a core computes is paid by all that share it, one after the other.
#[test]
fn a_core_computes_for_each_operation() {
    let sweeps = "[x]\nkey = 'clients'\nlabel = 'clients'\nvalues = [1, 4]\n";
    let text = |compute: &str| {
        format!(
            "id = 'f'\ntitle = ''\nsource = ''\nsetup = ''\nclaim = []\npanel = []\n{sweeps}\
             [[series]]\nname = 'a'\nlabel = ''\nclients = [4]\nclients_per_cn = 4\nclients_per_core = 4\nprofile = 'cx4'\n\
             {compute}duration = '2ms'\nlock = {{ name = 'cas', locks = 1000000, theta = 0 }}\n"
        )
    };
    let points = |compute| run(&Figure::parse(&text(compute)).expect("a figure"));
    let (free, dear) = (points(""), points("compute = '20us'\n"));
    let mean = |points: &[Point]| number(points, "a", 1.0, "latency_us.mean");
    let more = mean(&dear) - mean(&free);
    assert!((more - 20.0).abs() < 0.1, "{more} us more");
    // Four operations of 20 us or more, one after the other on the core.
    let rate = number(&dear, "a", 4.0, "throughput_ops_s");
    assert!((40_000.0..50_000.0).contains(&rate), "{rate} a second");
    let refused = run_error(&text("compute = 'long'\n"));
    assert!(refused.contains("long"), "{refused}");
}

fn run_error(text: &str) -> String {
    let figure = Figure::parse(text).expect("a figure");
    let refused = sweep::run(&figure, false, &mut None);
    refused.expect_err("it makes no sense").to_string()
}

#[test]
fn two_ways_to_sweep_are_one_too_many() {
    let axis = "key = 'clients'\nlabel = 'clients'\nvalues = [1]\n";
    let refused = figure(
        &format!("[x]\n{axis}[[sweep]]\nname = 's'\n{axis}"),
        &[("a", 4, "name = 'cas'")],
    );
    let reason = refused.expect_err("both are there");
    assert!(reason.contains("[x] and [[sweep]]"), "{reason}");
}

#[test]
fn messages_between_nodes_that_are_far_apart_take_longer() {
    let axis = "[x]\nkey = 'peer_latency'\nlabel = ''\nvalues = [1, 8]\n";
    let both = [("queue", 8, "name = 'shiftlock'"), ("spin", 8, "name = 'cas-rw'")];
    let points = run(&figure(axis, &both).expect("a figure"));
    let rate = |series, x| number(&points, series, x, "throughput_ops_s");
    assert!(rate("queue", 8.0) < 0.8 * rate("queue", 1.0), "hand-overs travel");
    assert_eq!(rate("spin", 8.0), rate("spin", 1.0), "nobody writes to anybody");
}

#[test]
fn a_queue_of_another_capacity_costs_a_release_more() {
    let axis = "[x]\nkey = 'declock_capacity'\nlabel = ''\nvalues = [4, 1024]\n";
    let points = run(&figure(axis, &[("a", 4, "name = 'declock'")]).expect("a figure"));
    let read = |x| number(&points, "a", x, "per_op.bytes_read");
    assert!(read(1024.0) > read(4.0) + 6000.0, "{} and {}", read(4.0), read(1024.0));
    let refused = figure(
        "[x]\nkey = 'declock_capacity'\nlabel = ''\nvalues = [5]\n",
        &[("a", 4, "name = 'declock'")],
    );
    let error = sweep::run(&refused.expect("a figure"), false, &mut None).expect_err("5 is no power of two");
    assert!(error.to_string().contains("power of two"), "{error}");
}

#[test]
fn writers_hand_over_as_often_as_the_figure_says() {
    let axis = "[x]\nkey = 'handovers_max'\nlabel = ''\nvalues = [1, 1000]\n";
    let lock = "name = 'shiftlock', read_ratio = 0.3";
    let points = run(&figure(axis, &[("a", 40, lock)]).expect("a figure"));
    let p99 = |x| number(&points, "a", x, "acquire_hottest_us.p99");
    assert!(p99(1.0) != p99(1000.0), "readers get their turn sooner or later");
}

#[test]
fn a_compute_node_dies_and_the_memory_node_goes_away_for_a_while() {
    let axis = "[x]\nkey = 'time'\nlabel = ''\nvalues = [5, 10, 15, 20, 25, 30]\n";
    let lock = "name = 'declock', lease = '500us', faults = [{ at = '5ms', what = 'compute-node-dies' }, \
                { at = '15ms', what = 'memory-node-leaves' }, { at = '20ms', what = 'memory-node-returns' }]";
    let points = run(&figure(axis, &[("a", 8, lock)]).expect("a figure"));
    let rates: Vec<f64> = points
        .iter()
        .map(|point| point.number("throughput_ops_s").expect("a rate"))
        .collect();
    assert_eq!(rates.len(), 6);
    assert!(rates[0] > 100_000.0, "{rates:?}");
    assert!(
        rates[2] > 0.2 * rates[0] && rates[2] < 0.9 * rates[0],
        "half of the clients are dead: {rates:?}"
    );
    assert!(rates[3] < 0.01 * rates[0], "nothing can be done: {rates:?}");
    assert!(rates[5] > 0.8 * rates[2], "the rest goes on: {rates:?}");
    assert!(
        points[0].number("resets.count") > Some(0.0),
        "what the dead held was taken back"
    );
}

#[test]
fn locks_that_are_never_given_back_are_recovered() {
    let axis = "[x]\nkey = 'failure_rate'\nlabel = ''\nvalues = [0, 0.01]\n";
    let both = [
        ("shift", 8, "name = 'shiftlock', read_ratio = 0.5, lease = '50us'"),
        ("dslr", 8, "name = 'dslr', read_ratio = 0.5, lease = '50us'"),
    ];
    let points = run(&figure(axis, &both).expect("a figure"));
    for series in ["shift", "dslr"] {
        let [whole, failing] = [0.0, 0.01].map(|x| number(&points, series, x, "operations"));
        // Each failure blocks one of twenty locks for a few leases: far more than the first failures, far less
        // than without any.
        assert!(
            failing > 200.0 && failing < 0.9 * whole,
            "{series}: {failing} of {whole}"
        );
    }
}

#[test]
fn phases_add_up_to_the_whole() {
    let axis = "[x]\nkey = 'read_ratio'\nlabel = ''\nvalues = [0.5]\n";
    let locks =
        ["shiftlock", "cas", "cas-backoff", "dslr"].map(|name| (name, format!("name = '{name}', is_timed = true")));
    let series: Vec<_> = locks.iter().map(|(name, lock)| (*name, 12, lock.as_str())).collect();
    let points = run(&figure(axis, &series).expect("a figure"));
    for (name, _) in &locks {
        let of = |key: &str| number(&points, name, 0.5, key);
        let writer = of("phases_us.writer.ia") + of("phases_us.writer.queue") + of("phases_us.writer.rt");
        let reader = of("phases_us.reader.ia") + of("phases_us.reader.ww") + of("phases_us.reader.rt");
        let (acquire, mean) = ((writer + reader) / 2.0, of("acquire_us.mean"));
        // Half of each, give or take what chance decides and what crosses the ends of the time that counts.
        assert!((acquire / mean - 1.0).abs() < 0.15, "{name}: {acquire} of {mean} us");
        let (release, mean) = (
            of("phases_us.release.ia") + of("phases_us.release.ns"),
            of("release_us.mean"),
        );
        assert!((release / mean - 1.0).abs() < 0.15, "{name}: {release} of {mean} us");
    }
}

/// A figure of these sweeps and series that work on an index, both in TOML.
fn store_figure(sweeps: &str, series: &[(&str, &str)]) -> Figure {
    let mut text = format!("id = 'f'\ntitle = ''\nsource = ''\nsetup = ''\nclaim = []\npanel = []\n{sweeps}\n");
    for (name, store) in series {
        text += &format!(
            "[[series]]\nname = '{name}'\nlabel = ''\nclients = [32]\nclients_per_cn = 4\nprofile = 'cx6'\n\
             duration = '1ms'\nwarm_up = '1ms'\n\
             store = {{ items = 1000, workload = 'write-only', theta = 0.99, {store} }}\n"
        );
    }
    Figure::parse(&text).expect("a figure")
}

#[test]
fn stores_are_swept_by_what_they_have() {
    let axis = |key: &str, values: &str| format!("[x]\nkey = '{key}'\nlabel = ''\nvalues = [{values}]\n");
    let swept = |key, values, store| run(&store_figure(&axis(key, values), &[("a", store)]));
    let retries = |points: &[Point], x| number(points, "a", x, "per_op.retries");

    let by_theta = swept("theta", "0, 0.99", "sync = 'optimistic'");
    assert!(retries(&by_theta, 0.99) > 5.0 * retries(&by_theta, 0.0));
    let by_items = swept("items", "1, 1000", "sync = 'optimistic'");
    assert!(retries(&by_items, 1.0) > 5.0 * retries(&by_items, 1000.0));
    let by_nodes = swept("cns", "1, 8", "sync = 'optimistic'");
    assert_eq!(number(&by_nodes, "a", 8.0, "clients"), 32.0);
    let by_mix = swept("update_percent", "0, 100", "sync = 'optimistic'");
    assert_eq!(number(&by_mix, "a", 0.0, "mix.update"), 0.0);
    assert_eq!(number(&by_mix, "a", 100.0, "mix.search"), 0.0);
    let by_value = swept("value_bytes", "8, 500", "sync = 'optimistic'");
    let written = |x| number(&by_value, "a", x, "per_op.bytes_written");
    assert!(written(500.0) > written(8.0) + 400.0);
    let by_cost = swept("extended_atomics", "1, 16", "sync = 'farside', hotness = 0");
    let rate = |x| number(&by_cost, "a", x, "throughput_ops_s");
    assert!(rate(16.0) < 0.8 * rate(1.0), "masked atomics are dear");
    // Nobody is ever hot enough; everybody always is.
    let by_hotness = swept("hotness", "0, 1000000", "sync = 'cider'");
    let queued = |x| number(&by_hotness, "a", x, "combine.pessimistic_rate");
    assert!(queued(0.0) > 0.9);
    assert_eq!(queued(1e6), 0.0);
    let by_credit = swept("initial_credit", "0, 36", "sync = 'cider'");
    assert_eq!(number(&by_credit, "a", 0.0, "combine.pessimistic_rate"), 0.0);
    assert!(number(&by_credit, "a", 36.0, "credit_bytes") > 0.0);
    let race = swept("theta", "0.5", "sync = 'shiftlock-mutex', index = 'race'");
    assert_eq!(number(&race, "a", 0.5, "pointer_bytes"), 24.0);
}

#[test]
fn values_in_leaves_are_as_long_as_a_sweep_says() {
    let sweeps = "[x]\nkey = 'value_bytes'\nlabel = ''\nvalues = [8, 512]\n";
    let points = run(&store_figure(sweeps, &[("a", "index = 'sherman'")]));
    let per_op = |x, key| number(&points, "a", x, key);
    // An entry; and the leaf that it is in.
    let written = |x| per_op(x, "per_op.bytes_written");
    assert!(
        (450.0..550.0).contains(&(written(512.0) - written(8.0))),
        "{} and {}",
        written(8.0),
        written(512.0)
    );
}

#[test]
fn a_sweep_says_what_is_so_in_it() {
    let sweeps = "[[sweep]]\nname = 'one'\nkey = 'clients'\nlabel = ''\nvalues = [4]\nitems = 1\nworkload = 'ycsb-c'\n";
    let points = run(&store_figure(sweeps, &[("a", "sync = 'optimistic'")]));
    assert_eq!(number(&points, "a@one", 4.0, "items"), 1.0);
    assert_eq!(number(&points, "a@one", 4.0, "mix.update"), 0.0);
}

#[test]
fn a_series_has_nothing_of_another_kind() {
    let axis = "[x]\nkey = 'items'\nlabel = ''\nvalues = [1]\n";
    let reason = figure(axis, &[("a", 4, "name = 'cas'")]).expect_err("locks have no items");
    assert!(reason.contains("Items"), "{reason}");
}

/// What a compute node has learned about hot keys is worth nothing when others become hot.
#[test]
fn a_hot_set_that_moves_is_noticed_by_who_has_learned() {
    let times: Vec<String> = (1..=40).map(|slot| format!("{}", f64::from(slot) / 4.0)).collect();
    let axis = format!("[x]\nkey = 'time'\nlabel = ''\nvalues = [{}]\n", times.join(", "));
    let moves = "faults = [{ at = '5ms', what = 'hot-set-moves' }]";
    let store = |sync: &str, more: &str| format!("sync = '{sync}', {more}");
    let series = [("cider", store("cider", moves)), ("farside", store("farside", moves))];
    let series: Vec<_> = series.iter().map(|(name, store)| (*name, store.as_str())).collect();
    let text = store_figure(&axis, &series);
    let points = run(&text);
    let rate = |series: &str, range: core::ops::Range<usize>| {
        let points: Vec<&Point> = points.iter().filter(|point| point.series == series).collect();
        let rates = points[range.clone()]
            .iter()
            .map(|point| point.number("throughput_ops_s").expect("a rate"));
        rates.sum::<f64>() / range.len() as f64
    };
    for series in ["cider", "farside"] {
        assert!(rate(series, 30..40) > 0.7 * rate(series, 10..20), "{series} is back");
    }
}

#[test]
fn a_bank_is_open_on_this_machine_and_has_no_card() {
    let figure = |more: &str| {
        Figure::parse(&format!(
            "id = 'f'\ntitle = ''\nsource = ''\nsetup = ''\nclaim = []\npanel = []\n[[series]]\nname = 'a'\nlabel = ''\nclients = [2]\n\
             duration = '2ms'\nbank = {{ contender = 'redlock', accounts = 50, rounds = 1 }}\n{more}\n[quick]\nitems = 20\n"
        ))
    };
    let plain = figure("").expect("a figure");
    let bank = plain.series[0].bank.as_ref().expect("a bank");
    assert_eq!(
        [false, true].map(|is_quick| plain.accounts_of(bank, is_quick)),
        [50, 20]
    );
    for more in ["profile = 'cx5'", "clients_per_cn = 4"] {
        let refused = figure(more).expect_err("it would mean nothing");
        assert!(refused.contains("a bank has no `profile`"), "{refused}");
    }
    let both = figure("lock = { name = 'cas' }").expect_err("one of them");
    assert!(both.contains("must have one of"), "{both}");
}
