#!/usr/bin/env python3
"""Checks examples/kubernetes: the fields that the API's schema requires exist, names resolve, flags and times are
consistent.

usage: kubernetes_test.py WINNOW [VENV]

With an environment (`make test-heavy`) every object is checked against the schemas of the oldest and the newest
Kubernetes that kubernetes-validate knows; without one, only if that package is installed. Prints a line that begins
with "skipped: " and exits with 0 if Python has no yaml.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from client_support import ensure_packages

PACKAGES = ["kubernetes-validate==1.37.0"]
ROOT = pathlib.Path(__file__).resolve().parents[2]
# kind: (apiVersion, required and known fields besides apiVersion, kind and metadata)
KINDS = {"PersistentVolumeClaim": ("v1", {"spec"}), "Service": ("v1", {"spec"}), "ConfigMap": ("v1", {"data"}),
         "StatefulSet": ("apps/v1", {"spec"}), "Deployment": ("apps/v1", {"spec"}),
         "PodDisruptionBudget": ("policy/v1", {"spec"})}
SPECS = {  # (required, known) fields of a spec
    "PersistentVolumeClaim": ({"accessModes", "resources"}, {"storageClassName", "volumeName"}),
    "Service": ({"selector", "ports"}, {"clusterIP", "publishNotReadyAddresses", "type"}),
    "StatefulSet": ({"serviceName", "selector", "template"}, {"replicas", "podManagementPolicy"}),
    "Deployment": ({"selector", "template"}, {"replicas", "strategy"}),
    "PodDisruptionBudget": ({"selector", "maxUnavailable"}, set())}
POD = {"terminationGracePeriodSeconds", "securityContext", "affinity", "containers", "volumes"}
CONTAINER = {"name", "image", "args", "ports", "resources", "startupProbe", "readinessProbe", "livenessProbe",
             "securityContext", "volumeMounts"}
PROBE = {"httpGet", "periodSeconds", "timeoutSeconds", "failureThreshold"}
SOURCES = {"persistentVolumeClaim": "claimName", "configMap": "name", "secret": "secretName"}
problems = []


def expect(is_so, what):
    if not is_so:
        problems.append(what)


def check_fields(where, fields, required, known):
    expect(required <= set(fields), f"{where} lacks {sorted(required - set(fields))}")
    expect(set(fields) <= required | known, f"{where} has unknown {sorted(set(fields) - required - known)}")


def check_pod(where, pod, names):
    check_fields(where, pod, {"containers"}, POD)
    volumes = {volume["name"]: volume for volume in pod.get("volumes", [])}
    for name, volume in volumes.items():
        (source,) = set(volume) - {"name"}
        target = volume[source][SOURCES[source]]
        kind = source[0].upper() + source[1:]
        # The user creates the secret by hand.
        expect(source == "secret" or (kind, target) in names, f"{where}: there is no {kind} {target}")
    for container in pod["containers"]:
        place = f"{where}, container {container.get('name')}"
        check_fields(place, container, {"name", "image"}, CONTAINER)
        ports = {port["name"] for port in container["ports"] if 0 < port["containerPort"] < 65536}
        for mount in container["volumeMounts"]:
            check_fields(place, mount, {"name", "mountPath"}, {"readOnly"})
            expect(mount["name"] in volumes, f"{place}: there is no volume {mount['name']}")
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            if probe in container:
                check_fields(f"{place}, {probe}", container[probe], {"httpGet"}, PROBE)
                get = container[probe]["httpGet"]
                check_fields(f"{place}, {probe}", get, {"path", "port"}, set())
                expect(get["port"] in ports, f"{place}, {probe}: there is no port {get['port']}")
        expect({"readinessProbe", "livenessProbe"} <= set(container), f"{place} has not both probes")
        for kind, amounts in container["resources"].items():
            expect(kind in ("requests", "limits") and all(
                re.fullmatch(r"\d+(m|[KMGT]i)?", str(amount)) for amount in amounts.values()), f"{place}: {amounts}")
    return ports


def check_servers(tool, server):
    """The flags exist in the tool, and Kubernetes waits longer than the flags allow the server."""
    pod = server["spec"]["template"]["spec"]
    flags = dict(flag.split("=", 1) for flag in pod["containers"][0]["args"])
    usage = subprocess.run([tool, "serve", "--help"], check=True, capture_output=True, text=True).stdout
    for flag in flags:
        expect(re.search(rf"{flag}\b", usage), f"winnow serve has no flag {flag}")
    seconds = int(flags["--drain"]) + int(flags["--grace"])
    expect(pod["terminationGracePeriodSeconds"] > seconds + 15, "a pod is killed before its server has ended")
    probe = pod["containers"][0]["readinessProbe"]
    expect(int(flags["--drain"]) > probe["periodSeconds"] * probe["failureThreshold"], "--drain ends before it is noticed")
    gib = {flag: int(flags[flag][:-3]) for flag in ("--kv-limit", "--kv-contexts", "--cache-dir-limit")}
    memory = int(pod["containers"][0]["resources"]["limits"]["memory"][:-2])
    expect(gib["--kv-contexts"] < gib["--kv-limit"] < memory, "the caches take more than the container may have")
    mounts = {mount["mountPath"]: mount for mount in pod["containers"][0]["volumeMounts"]}
    folder = pathlib.PurePath(flags["--cache-dir"])
    # The server creates this folder in the volume for itself alone.
    expect(str(folder.parent) in mounts and not mounts[str(folder.parent)].get("readOnly"), "contexts have no volume")
    for flag in ("--model", "--api-key-file"):
        expect(str(pathlib.PurePath(flags[flag]).parent) in mounts, f"{flag} has no volume")
    return gib["--cache-dir-limit"]


def check_proxy(configuration, servers):
    n = servers["spec"]["replicas"]
    names = re.findall(r"server \S+ ([\w.-]+):8080", configuration)
    wanted = [f"{servers['metadata']['name']}-{i}.{servers['spec']['serviceName']}" for i in range(n)]
    expect(names == wanted * 2, f"the proxy knows {names} and not {wanted}")
    haproxy = shutil.which("haproxy", path="/usr/sbin:/usr/bin")
    if haproxy:
        with tempfile.NamedTemporaryFile("w", suffix=".cfg") as file:
            file.write(configuration)
            file.flush()
            checked = subprocess.run([haproxy, "-c", "-f", file.name], capture_output=True, text=True)
            expect(checked.returncode == 0, checked.stdout + checked.stderr)


def check_schemas(documents):
    """Returns the versions of Kubernetes whose schemas the objects were checked against."""
    try:
        import kubernetes_validate
    except ImportError:
        return []
    versions = kubernetes_validate.utils.all_versions()
    versions = [versions[0], versions[-1]]
    for version in versions:
        for document in documents:
            try:
                kubernetes_validate.validate(document, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                path = ".".join(str(part) for part in error.path)
                expect(False, f"{document['kind']} {document['metadata']['name']}, {path}: {error.message} (in {version})")
    return versions


def main():
    if len(sys.argv) > 2:
        ensure_packages(__file__, PACKAGES)
    try:
        import yaml
    except ImportError:
        return print("skipped: Python has no yaml")
    documents = [document for path in sorted((ROOT / "examples/kubernetes").glob("*.yaml"))
                 for document in yaml.safe_load_all(path.read_text())]
    names = {(document["kind"], document["metadata"]["name"]): document for document in documents}
    expect(len(names) == len(documents) == 8, f"{len(documents)} objects: {sorted(names)}")
    pods = {}
    for (kind, name), document in names.items():
        where = f"{kind} {name}"
        expect(re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name), f"{where} cannot have this name")
        version, fields = KINDS[kind]
        expect(document["apiVersion"] == version, f"{where} is of {version}")
        check_fields(where, document, {"apiVersion", "kind", "metadata"} | fields, set())
        if kind in SPECS:
            check_fields(where + ", spec", document["spec"], *SPECS[kind])
        if kind in ("StatefulSet", "Deployment"):
            labels = document["spec"]["template"]["metadata"]["labels"]
            expect(document["spec"]["selector"]["matchLabels"].items() <= labels.items(), f"{where} selects other pods")
            pods[tuple(labels.items())] = check_pod(where, document["spec"]["template"]["spec"], names)
    for (kind, name), document in names.items():
        if kind == "Service":
            ports = pods.get(tuple(document["spec"]["selector"].items()), set())
            expect(all(port["targetPort"] in ports for port in document["spec"]["ports"]), f"Service {name} leads nowhere")
        if kind == "PodDisruptionBudget":
            expect(tuple(document["spec"]["selector"]["matchLabels"].items()) in pods, f"{kind} {name} protects nothing")
    servers = names["StatefulSet", "winnow"]
    expect(("Service", servers["spec"]["serviceName"]) in names, "the servers' names have no service")
    limit = check_servers(sys.argv[1], servers)
    volume = names["PersistentVolumeClaim", "winnow-contexts"]["spec"]
    expect(volume["accessModes"] == ["ReadWriteMany"], "the servers cannot share the folder")
    expect(limit < int(volume["resources"]["requests"]["storage"][:-2]), "saved contexts do not fit their volume")
    check_proxy(names["ConfigMap", "winnow-proxy"]["data"]["haproxy.cfg"], servers)
    versions = check_schemas(documents)
    expect(versions or len(sys.argv) <= 2, "there is no kubernetes_validate")
    if problems:
        sys.exit("failed: " + "\n".join(problems))
    print(f"passed: {len(documents)} objects" + (f", by the schemas of {' and '.join(versions)}" if versions else ""))


if __name__ == "__main__":
    main()
