// The console's files are embedded in the program at compile time.
#include "CConsole.h"

#pragma clang diagnostic ignored "-Wc23-extensions"

static const unsigned char page[] = {
#embed "assets/index.html"
};
static const unsigned char style[] = {
#embed "assets/console.css"
};
static const unsigned char icon[] = {
#embed "assets/icon.svg"
};
static const unsigned char main_script[] = {
#embed "assets/main.js"
};
static const unsigned char api_script[] = {
#embed "assets/api.js"
};
static const unsigned char texts_script[] = {
#embed "assets/texts.js"
};
static const unsigned char metrics_script[] = {
#embed "assets/metrics.js"
};
static const unsigned char plot_script[] = {
#embed "assets/plot.js"
};
static const unsigned char dom_script[] = {
#embed "assets/dom.js"
};
static const unsigned char faults_script[] = {
#embed "assets/faults.js"
};
static const unsigned char apps_script[] = {
#embed "assets/apps.js"
};
static const unsigned char choice_script[] = {
#embed "assets/choice.js"
};
static const unsigned char overview_script[] = {
#embed "assets/overview.js"
};
static const unsigned char devices_script[] = {
#embed "assets/devices.js"
};
static const unsigned char messages_script[] = {
#embed "assets/messages.js"
};
static const unsigned char tasks_script[] = {
#embed "assets/tasks.js"
};
static const unsigned char handoff_script[] = {
#embed "assets/handoff.js"
};
static const unsigned char cluster_script[] = {
#embed "assets/cluster.js"
};
static const unsigned char send_script[] = {
#embed "assets/send.js"
};
static const unsigned char device_script[] = {
#embed "assets/device.js"
};
static const unsigned char device_client_script[] = {
#embed "assets/deviceclient.js"
};
static const unsigned char find_script[] = {
#embed "assets/find.js"
};
static const unsigned char settings_script[] = {
#embed "assets/settings.js"
};
static const unsigned char api_description[] = {
#embed "assets/openapi.yaml"
};

// The device page runs on the package of Clients/javascript. Its files are embedded from there, so there is one source.
static const unsigned char client_browser[] = {
#embed "../../../../Clients/javascript/src/browser.js"
};
static const unsigned char client_bytes[] = {
#embed "../../../../Clients/javascript/src/bytes.js"
};
static const unsigned char client_client[] = {
#embed "../../../../Clients/javascript/src/client.js"
};
static const unsigned char client_codes[] = {
#embed "../../../../Clients/javascript/src/codes.js"
};
static const unsigned char client_core[] = {
#embed "../../../../Clients/javascript/src/core.js"
};
static const unsigned char client_database[] = {
#embed "../../../../Clients/javascript/src/database.js"
};
static const unsigned char client_defaults[] = {
#embed "../../../../Clients/javascript/src/defaults.js"
};
static const unsigned char client_deliveries[] = {
#embed "../../../../Clients/javascript/src/deliveries.js"
};
static const unsigned char client_endpoints[] = {
#embed "../../../../Clients/javascript/src/endpoints.js"
};
static const unsigned char client_errors[] = {
#embed "../../../../Clients/javascript/src/errors.js"
};
static const unsigned char client_fetching[] = {
#embed "../../../../Clients/javascript/src/fetching.js"
};
static const unsigned char client_frames[] = {
#embed "../../../../Clients/javascript/src/frames.js"
};
static const unsigned char client_handover[] = {
#embed "../../../../Clients/javascript/src/handover.js"
};
static const unsigned char client_heartbeat[] = {
#embed "../../../../Clients/javascript/src/heartbeat.js"
};
static const unsigned char client_index[] = {
#embed "../../../../Clients/javascript/src/index.js"
};
static const unsigned char client_limits[] = {
#embed "../../../../Clients/javascript/src/limits.js"
};
static const unsigned char client_names[] = {
#embed "../../../../Clients/javascript/src/names.js"
};
static const unsigned char client_options[] = {
#embed "../../../../Clients/javascript/src/options.js"
};
static const unsigned char client_processed[] = {
#embed "../../../../Clients/javascript/src/processed.js"
};
static const unsigned char client_random[] = {
#embed "../../../../Clients/javascript/src/random.js"
};
static const unsigned char client_reconnection[] = {
#embed "../../../../Clients/javascript/src/reconnection.js"
};
static const unsigned char client_sha256[] = {
#embed "../../../../Clients/javascript/src/sha256.js"
};
static const unsigned char client_state[] = {
#embed "../../../../Clients/javascript/src/state.js"
};
static const unsigned char client_tokens[] = {
#embed "../../../../Clients/javascript/src/tokens.js"
};
static const unsigned char client_upstream[] = {
#embed "../../../../Clients/javascript/src/upstream.js"
};

#define HTML "text/html;charset=utf-8"
#define CSS "text/css;charset=utf-8"
#define SCRIPT "text/javascript;charset=utf-8"

static const struct longwire_console_file files[] = {
    {"index.html", HTML, page, sizeof page},
    {"console.css", CSS, style, sizeof style},
    {"icon.svg", "image/svg+xml", icon, sizeof icon},
    {"main.js", SCRIPT, main_script, sizeof main_script},
    {"api.js", SCRIPT, api_script, sizeof api_script},
    {"texts.js", SCRIPT, texts_script, sizeof texts_script},
    {"metrics.js", SCRIPT, metrics_script, sizeof metrics_script},
    {"plot.js", SCRIPT, plot_script, sizeof plot_script},
    {"dom.js", SCRIPT, dom_script, sizeof dom_script},
    {"faults.js", SCRIPT, faults_script, sizeof faults_script},
    {"apps.js", SCRIPT, apps_script, sizeof apps_script},
    {"choice.js", SCRIPT, choice_script, sizeof choice_script},
    {"overview.js", SCRIPT, overview_script, sizeof overview_script},
    {"devices.js", SCRIPT, devices_script, sizeof devices_script},
    {"messages.js", SCRIPT, messages_script, sizeof messages_script},
    {"tasks.js", SCRIPT, tasks_script, sizeof tasks_script},
    {"handoff.js", SCRIPT, handoff_script, sizeof handoff_script},
    {"cluster.js", SCRIPT, cluster_script, sizeof cluster_script},
    {"send.js", SCRIPT, send_script, sizeof send_script},
    {"device.js", SCRIPT, device_script, sizeof device_script},
    {"deviceclient.js", SCRIPT, device_client_script, sizeof device_client_script},
    {"client/browser.js", SCRIPT, client_browser, sizeof client_browser},
    {"client/bytes.js", SCRIPT, client_bytes, sizeof client_bytes},
    {"client/client.js", SCRIPT, client_client, sizeof client_client},
    {"client/codes.js", SCRIPT, client_codes, sizeof client_codes},
    {"client/core.js", SCRIPT, client_core, sizeof client_core},
    {"client/database.js", SCRIPT, client_database, sizeof client_database},
    {"client/defaults.js", SCRIPT, client_defaults, sizeof client_defaults},
    {"client/deliveries.js", SCRIPT, client_deliveries, sizeof client_deliveries},
    {"client/endpoints.js", SCRIPT, client_endpoints, sizeof client_endpoints},
    {"client/errors.js", SCRIPT, client_errors, sizeof client_errors},
    {"client/fetching.js", SCRIPT, client_fetching, sizeof client_fetching},
    {"client/frames.js", SCRIPT, client_frames, sizeof client_frames},
    {"client/handover.js", SCRIPT, client_handover, sizeof client_handover},
    {"client/heartbeat.js", SCRIPT, client_heartbeat, sizeof client_heartbeat},
    {"client/index.js", SCRIPT, client_index, sizeof client_index},
    {"client/limits.js", SCRIPT, client_limits, sizeof client_limits},
    {"client/names.js", SCRIPT, client_names, sizeof client_names},
    {"client/options.js", SCRIPT, client_options, sizeof client_options},
    {"client/processed.js", SCRIPT, client_processed, sizeof client_processed},
    {"client/random.js", SCRIPT, client_random, sizeof client_random},
    {"client/reconnection.js", SCRIPT, client_reconnection, sizeof client_reconnection},
    {"client/sha256.js", SCRIPT, client_sha256, sizeof client_sha256},
    {"client/state.js", SCRIPT, client_state, sizeof client_state},
    {"client/tokens.js", SCRIPT, client_tokens, sizeof client_tokens},
    {"client/upstream.js", SCRIPT, client_upstream, sizeof client_upstream},
    {"find.js", SCRIPT, find_script, sizeof find_script},
    {"settings.js", SCRIPT, settings_script, sizeof settings_script},
    {"openapi.yaml", "application/yaml;charset=utf-8", api_description, sizeof api_description},
};
static const size_t file_count = sizeof files / sizeof files[0];

const struct longwire_console_file *longwire_console_file(size_t index) {
    return index < file_count ? &files[index] : NULL;
}
