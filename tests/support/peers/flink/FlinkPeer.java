import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.JobStatus;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.CheckpointType;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.runtime.execution.ExecutionState;
import org.apache.flink.runtime.jobgraph.SavepointRestoreSettings;
import org.apache.flink.runtime.minicluster.*;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.source.legacy.SourceFunction;
import org.apache.flink.streaming.api.graph.StreamGraph;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.types.RowKind;
import org.apache.iceberg.*;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.flink.*;
import org.apache.iceberg.flink.data.FlinkParquetReaders;
import org.apache.iceberg.flink.sink.FlinkSink;
import org.apache.iceberg.flink.sink.IcebergSink;
import org.apache.iceberg.flink.sink.dynamic.*;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.mapping.*;
import org.apache.iceberg.parquet.Parquet;

/**
 * Runs jobs that write an Iceberg table, one after the other, on a Flink of its own: answers a line of JSON with
 * one. See flink_peer.py for what a request holds.
 */
public class FlinkPeer {
  private static final ObjectMapper JSON = new ObjectMapper();
  // What the running job's source has yet to emit, and how much of it it has not.
  private static final BlockingQueue<RowData> ROWS = new LinkedBlockingQueue<>();
  private static final AtomicLong WAITING = new AtomicLong();

  /** Emits what is put in the queue until it is cancelled. */
  public static class Rows implements SourceFunction<RowData> {
    private volatile boolean running = true;

    @Override
    public void run(SourceContext<RowData> context) throws Exception {
      while (running) {
        RowData row = ROWS.poll(5, TimeUnit.MILLISECONDS);
        if (row != null) {
          synchronized (context.getCheckpointLock()) {
            context.collect(row);
            WAITING.decrementAndGet();
          }
        }
      }
    }

    @Override
    public void cancel() {
      running = false;
    }
  }

  private final MiniCluster cluster;
  private final JsonNode asked;
  private final TableIdentifier name;
  private final CatalogLoader catalog;
  private final TableLoader loader;

  private FlinkPeer(MiniCluster cluster, JsonNode asked) {
    this.cluster = cluster;
    this.asked = asked;
    this.name = TableIdentifier.parse(text("table"));
    org.apache.hadoop.conf.Configuration conf = new org.apache.hadoop.conf.Configuration();
    String warehouse = text("warehouse");
    this.catalog =
        text("catalog").equals("hadoop")
            ? CatalogLoader.hadoop("lake", conf, Map.of("warehouse", warehouse))
            : CatalogLoader.custom("lake", Map.of("warehouse", warehouse, "uri", sqlite(warehouse),
                "jdbc.schema-version", "V0"), conf, "org.apache.iceberg.jdbc.JdbcCatalog");
    this.loader = TableLoader.fromCatalog(catalog, name);
  }

  private static String sqlite(String warehouse) {
    return "jdbc:sqlite:" + warehouse.replaceFirst("^file:/+", "/") + "/catalog.db";
  }

  private String text(String key) {
    return asked.get(key).asText();
  }

  private Table table() {
    return catalog.loadCatalog().loadTable(name);
  }

  /** Makes the job: a source that obeys us and the sink that was asked for. */
  private StreamGraph graph() throws Exception {
    Configuration conf = new Configuration();
    conf.setString("execution.checkpointing.dir", "file://" + text("checkpoints"));
    conf.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
    conf.setString("execution.checkpointing.interval", "1 h");
    conf.setString("restart-strategy.type", "none");
    asked.get("flink").fields().forEachRemaining(e -> conf.setString(e.getKey(), e.getValue().asText()));
    StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(conf);
    env.setParallelism(asked.get("parallelism").asInt());
    Schema schema = table().schema();
    InternalTypeInfo<RowData> type = InternalTypeInfo.of(FlinkSchemaUtil.convert(schema));
    DataStream<RowData> rows = env.addSource(new Rows(), "rows", type).uid("rows");
    boolean overwrite = text("mode").equals("overwrite");
    boolean upsert = text("mode").equals("upsert");
    List<String> keys = Arrays.asList(JSON.treeToValue(asked.get("keys"), String[].class));
    String uid = text("uid");
    String branch = text("branch");
    switch (text("sink")) {
      case "v1":
        FlinkSink.forRowData(rows).tableLoader(loader).uidPrefix(uid).overwrite(overwrite)
            .upsert(upsert).equalityFieldColumns(keys).toBranch(branch).append();
        break;
      case "v2":
        IcebergSink.forRowData(rows).tableLoader(loader).uidSuffix(uid).overwrite(overwrite)
            .upsert(upsert).equalityFieldColumns(keys).toBranch(branch).append();
        break;
      default:
        String to = name.toString();
        var spec = table().spec();
        DynamicIcebergSink.forInput(rows)
            .generator((row, out) -> out.collect(new DynamicRecord(
                TableIdentifier.parse(to), branch, schema, row, spec, DistributionMode.NONE, 1)))
            .catalogLoader(catalog).uidPrefix(uid).overwrite(overwrite).append();
    }
    StreamGraph graph = env.getStreamGraph();
    if (!asked.get("restore").isNull()) {
      graph.setSavepointRestoreSettings(SavepointRestoreSettings.forPath(text("restore"), true));
    }
    return graph;
  }

  /** Runs the job through its steps and stops it; returns the job's id and what each step made. */
  private Map<String, Object> run() throws Exception {
    ROWS.clear();
    WAITING.set(0);
    StreamGraph graph = graph();
    JobID job = graph.getJobID();
    cluster.submitJob(graph).get();
    List<String> made = new ArrayList<>();
    try {
      // A committer has committed what it restored before its task runs.
      until(job, () -> allRun(job));
      boolean dirty = false;
      for (JsonNode step : asked.get("steps")) {
        String what = step.get(0).asText();
        if (what.equals("rows")) {
          emit(job, step.get(1).asText());
          dirty = true;
        } else if (what.equals("savepoint")) {
          SavepointFormatType format = SavepointFormatType.valueOf(step.get(2).asText());
          made.add(cluster.triggerSavepoint(job, step.get(1).asText(), false, format).get());
        } else {
          long id = cluster.triggerCheckpoint(job, CheckpointType.FULL).get();
          made.add(text("checkpoints") + "/" + job + "/chk-" + id);
          if (dirty) {
            until(job, () -> committed(job) >= id);
          }
          dirty = false;
        }
      }
    } finally {
      if (!cluster.getJobStatus(job).get().isGloballyTerminalState()) {
        cluster.cancelJob(job).get();
        cluster.requestJobResult(job).get();
      }
    }
    return Map.of("job", job.toString(), "made", made);
  }

  private void emit(JobID job, String path) throws Exception {
    Schema schema = table().schema();
    NameMapping names = MappingUtil.create(schema);
    try (CloseableIterable<RowData> rows = Parquet.read(Files.localInput(path)).project(schema)
        .withNameMapping(names)
        .createReaderFunc(type -> FlinkParquetReaders.buildReader(schema, type)).build()) {
      for (RowData row : rows) {
        row.setRowKind(RowKind.INSERT);
        WAITING.incrementAndGet();
        ROWS.put(row);
      }
    }
    until(job, () -> WAITING.get() == 0);
  }

  private boolean allRun(JobID job) throws Exception {
    boolean all = false;
    for (var vertex : cluster.getExecutionGraph(job).get().getAllExecutionVertices()) {
      if (vertex.getExecutionState() != ExecutionState.RUNNING) {
        return false;
      }
      all = true;
    }
    return all;
  }

  private long committed(JobID job) {
    long newest = -1;
    for (Snapshot snapshot : table().snapshots()) {
      Map<String, String> summary = snapshot.summary();
      if (job.toString().equals(summary.get("flink.job-id"))) {
        newest = Math.max(newest, Long.parseLong(summary.get("flink.max-committed-checkpoint-id")));
      }
    }
    return newest;
  }

  private void until(JobID job, Callable<Boolean> condition) throws Exception {
    while (!condition.call()) {
      if (cluster.getJobStatus(job).get() == JobStatus.FAILED) {
        throw cluster.requestJobResult(job).get().getSerializedThrowable().get();
      }
      Thread.sleep(5);
    }
  }

  private static String trace(Throwable error) {
    return error + (error.getCause() == null ? "" : "; " + trace(error.getCause()));
  }

  public static void main(String[] arguments) throws Exception {
    Configuration conf = new Configuration();
    conf.setString("rest.bind-port", "0");
    conf.setString("taskmanager.memory.network.max", "64m");
    MiniClusterConfiguration settings = new MiniClusterConfiguration.Builder()
        .setConfiguration(conf).setNumTaskManagers(1).setNumSlotsPerTaskManager(4).build();
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
    try (MiniCluster cluster = new MiniCluster(settings)) {
      cluster.start();
      for (String line = input.readLine(); line != null; line = input.readLine()) {
        Map<String, Object> answer;
        try {
          answer = new FlinkPeer(cluster, JSON.readTree(line)).run();
        } catch (Throwable error) {
          answer = Map.of("error", trace(error));
        }
        System.out.println(JSON.writeValueAsString(answer));
      }
    }
  }
}
