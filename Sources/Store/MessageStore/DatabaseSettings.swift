internal import CRocksDB

/// RocksDB's option objects; they must outlive the database.
final class DatabaseSettings {
    let options: OpaquePointer
    /// The options of families whose rows are written once and dropped with the family.
    let ephemeralOptions: OpaquePointer
    let readOptions: OpaquePointer
    let ingestOptions: OpaquePointer
    let environmentOptions: OpaquePointer
    private let cache: OpaquePointer
    private let cacheByteCount: Int

    init(cacheByteCount: Int, openFileLimit: Int = Limits.openFileCount) {
        self.cacheByteCount = cacheByteCount
        cache = rocksdb_cache_create_lru(cacheByteCount)
        options = Self.makeOptions(cache: cache, openFileLimit: openFileLimit)
        ephemeralOptions = Self.makeEphemeralOptions(from: options)
        readOptions = rocksdb_readoptions_create()
        ingestOptions = rocksdb_ingestexternalfileoptions_create()
        rocksdb_ingestexternalfileoptions_set_move_files(ingestOptions, 1)
        environmentOptions = rocksdb_envoptions_create()
    }

    deinit {
        rocksdb_readoptions_destroy(readOptions)
        rocksdb_ingestexternalfileoptions_destroy(ingestOptions)
        rocksdb_envoptions_destroy(environmentOptions)
        rocksdb_options_destroy(ephemeralOptions)
        rocksdb_options_destroy(options)
        rocksdb_cache_destroy(cache)
    }

    /// Enables background compaction for families created from now on.
    func allowCompaction() {
        rocksdb_options_set_disable_auto_compactions(options, 0)
        rocksdb_options_set_disable_auto_compactions(ephemeralOptions, 0)
    }

    /// Frees the cache, except the parts pinned by open tables.
    func emptyCache() {
        rocksdb_cache_set_capacity(cache, 0)
        rocksdb_cache_set_capacity(cache, cacheByteCount)
    }

    var cachedByteCount: Int { rocksdb_cache_get_usage(cache) }

    /// Creates the options of ephemeral families.
    ///
    /// Their rows are never superseded, so compaction only reduces the number of files per lookup. Universal compaction merges
    /// many files of similar size at once. Each row is written about twice, rather than five times.
    private static func makeEphemeralOptions(from options: OpaquePointer) -> OpaquePointer {
        let ephemeral: OpaquePointer = rocksdb_options_create_copy(options)
        rocksdb_options_set_compaction_style(ephemeral, CInt(rocksdb_universal_compaction))
        rocksdb_options_set_level0_file_num_compaction_trigger(ephemeral, Limits.ephemeralRunCount)
        rocksdb_options_set_level0_slowdown_writes_trigger(ephemeral, Limits.ephemeralRunCount * 4)
        rocksdb_options_set_level0_stop_writes_trigger(ephemeral, Limits.ephemeralRunCount * 8)
        let merging: OpaquePointer = rocksdb_universal_compaction_options_create()
        rocksdb_universal_compaction_options_set_min_merge_width(merging, Limits.ephemeralRunCount / 2)
        rocksdb_universal_compaction_options_set_max_size_amplification_percent(merging, 10_000)
        rocksdb_options_set_universal_compaction_options(ephemeral, merging)
        rocksdb_universal_compaction_options_destroy(merging)
        return ephemeral
    }

    private static func makeOptions(cache: OpaquePointer, openFileLimit: Int) -> OpaquePointer {
        let options: OpaquePointer = rocksdb_options_create()
        rocksdb_options_set_create_if_missing(options, 1)
        rocksdb_options_set_create_missing_column_families(options, 1)
        rocksdb_options_set_paranoid_checks(options, 1)
        rocksdb_options_set_write_buffer_size(options, Limits.memtableByteCount)
        rocksdb_options_set_max_write_buffer_number(options, 2)
        rocksdb_options_set_max_background_jobs(options, 2)
        // Disabled until `allowCompaction`.
        rocksdb_options_set_disable_auto_compactions(options, 1)
        rocksdb_options_set_max_open_files(options, CInt(clamping: openFileLimit))
        rocksdb_options_set_target_file_size_base(options, 32 << 20)
        rocksdb_options_set_max_bytes_for_level_base(options, Limits.levelBaseByteCount)
        rocksdb_options_set_level_compaction_dynamic_level_bytes(options, 1)
        rocksdb_options_set_level0_file_num_compaction_trigger(options, Limits.sortedRunCount)
        rocksdb_options_set_level0_slowdown_writes_trigger(options, Limits.sortedRunCount * 4)
        rocksdb_options_set_level0_stop_writes_trigger(options, Limits.sortedRunCount * 8)
        rocksdb_options_set_compression(options, CInt(rocksdb_no_compression))
        rocksdb_options_set_bytes_per_sync(options, 1 << 20)
        // Log warnings and errors only, in few small files.
        rocksdb_options_set_info_log_level(options, 2)
        rocksdb_options_set_max_log_file_size(options, Limits.infoLogByteCount)
        rocksdb_options_set_keep_log_file_num(options, 2)
        rocksdb_options_add_compact_on_deletion_collector_factory(options, 1024, 256)
        let table: OpaquePointer = rocksdb_block_based_options_create()
        rocksdb_block_based_options_set_block_cache(table, cache)
        rocksdb_block_based_options_set_cache_index_and_filter_blocks(table, 1)
        rocksdb_block_based_options_set_pin_l0_filter_and_index_blocks_in_cache(table, 1)
        rocksdb_block_based_options_set_block_size(table, 8 << 10)
        rocksdb_block_based_options_set_filter_policy(table, rocksdb_filterpolicy_create_bloom_full(10))
        // Filters also cover the prefix of bucket, table and owner: a scan for an owner without rows reads no block.
        rocksdb_options_set_prefix_extractor(
            options, rocksdb_slicetransform_create_fixed_prefix(KeyCoding.partitionByteCount))
        rocksdb_options_set_block_based_table_factory(options, table)
        rocksdb_block_based_options_destroy(table)
        return options
    }
}
